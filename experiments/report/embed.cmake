# Writes report_files.cpp: the three files as raw strings.
set(text "#include \"experiments/report/report_files.hpp\"\n\nnamespace swaplab {\n\n")
foreach(pair "html;Html" "css;Css" "js;Js")
  list(GET pair 0 extension)
  list(GET pair 1 name)
  file(READ ${SOURCE}/report.${extension} content)
  string(APPEND text "const char* const kReport${name} = R\"~embedded~(${content})~embedded~\";\n")
endforeach()
file(WRITE ${OUTPUT} "${text}\n}  // namespace swaplab\n")
