# The plug-in for OpenCL devices: index/offload/opencl, where the headers are (Debian: opencl-c-headers). It is linked to
# nothing of OpenCL and nothing of Quire; kernels.cl travels in it as text.
find_path(OPENCL_INCLUDE CL/cl.h)
if(OPENCL_INCLUDE)
  add_custom_command(OUTPUT opencl_kernels.c
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=opencl_kernels.c -DNAME=opencl_kernels
            -DFILE=${PROJECT_SOURCE_DIR}/index/offload/opencl/kernels.cl -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    DEPENDS index/offload/opencl/kernels.cl cmake/embed_text.cmake VERBATIM)
  file(GLOB opencl_sources CONFIGURE_DEPENDS index/offload/opencl/*.c)
  add_library(quire_opencl MODULE ${opencl_sources} ${CMAKE_CURRENT_BINARY_DIR}/opencl_kernels.c)
  quire_compile_options(quire_opencl)
  target_include_directories(quire_opencl PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(quire_opencl SYSTEM PRIVATE ${OPENCL_INCLUDE})
  target_link_libraries(quire_opencl PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(quire_opencl PROPERTIES OUTPUT_NAME quire-opencl C_VISIBILITY_PRESET hidden)
  install(TARGETS quire_opencl DESTINATION ${CMAKE_INSTALL_LIBDIR}/quire)
else()
  message(STATUS "the plug-in for GPUs is left out: there are no OpenCL headers")
endif()
