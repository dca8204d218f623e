# Writes swaplab_commit.hpp at build time; unchanged content keeps its time stamp, so nothing is rebuilt.
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
if(code)
  set(commit unknown)
endif()
execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes
  ERROR_QUIET)
if(changes)
  set(dirty true)
else()
  set(dirty false)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once
#define SWAPLAB_COMMIT "@commit@"
#define SWAPLAB_DIRTY @dirty@
]] @ONLY)
