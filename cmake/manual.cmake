# manual.cmake - manual pages and shell completion, from what the programs say of themselves (packaging/manual.py). Left
# out where the programs cannot run here, and where there is no Python.
set(QUIRE_BASH_COMPLETION_DIR ${CMAKE_INSTALL_DATADIR}/bash-completion/completions CACHE STRING "")
set(QUIRE_ZSH_COMPLETION_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "")
find_package(Python3 COMPONENTS Interpreter QUIET)
if(CMAKE_CROSSCOMPILING OR QUIRE_FUZZ OR NOT Python3_FOUND)
  message(STATUS "manual pages and completion are left out: they need python3, and programs that run here")
else()
  set(manual ${CMAKE_CURRENT_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${manual}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/packaging/manual.py $<TARGET_FILE_DIR:quire> ${manual}
    COMMAND ${CMAKE_COMMAND} -E touch ${manual}/made
    DEPENDS quire quire-server quire-gateway packaging/manual.py VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual}/made)
  install(DIRECTORY ${manual}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${manual}/bash/ DESTINATION ${QUIRE_BASH_COMPLETION_DIR})
  install(DIRECTORY ${manual}/zsh/ DESTINATION ${QUIRE_ZSH_COMPLETION_DIR})
endif()
