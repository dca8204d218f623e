// report.html, report.css and report.js of this folder, as part of the program (see embed.cmake).
#pragma once

namespace swaplab {

extern const char* const kReportHtml;
extern const char* const kReportCss;
extern const char* const kReportJs;

}  // namespace swaplab
