# docs.cmake - the documents that the console shows: cmake -DFOLDER=docs -DOUTPUT=console_docs.S -P docs.cmake
# Of each page of FOLDER (not of the folders below it) the name, ended by a zero, the number of bytes (4), and the page as
# gzip -9n makes it; an empty name ends them. The compressed pages lie beside OUTPUT, in console_docs.
get_filename_component(place ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${place}/console_docs)
file(GLOB pages ${FOLDER}/*.md)
set(text "    .section .rodata
    .global console_docs
    .hidden console_docs
console_docs:
")
foreach(page IN LISTS pages)
  get_filename_component(name ${page} NAME)
  set(packed ${place}/console_docs/${name}.gz)
  execute_process(COMMAND gzip -9n INPUT_FILE ${page} OUTPUT_FILE ${packed} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "gzip -9n of ${page} failed: ${failed}")
  endif()
  string(APPEND text "    .asciz \"${name}\"\n    .4byte 2f - 1f\n1:  .incbin \"${packed}\"\n2:\n")
endforeach()
file(WRITE ${OUTPUT} "${text}    .byte 0\n    .section .note.GNU-stack, \"\", %progbits\n")
