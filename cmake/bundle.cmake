# `--target bundle`: build/…/bundle holds all that a machine without our packages needs to run amk; gpu_bundle adds the GPU tests.
set(AMK_BUNDLE_DIR ${CMAKE_BINARY_DIR}/bundle)
add_custom_target(bundle
  COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${AMK_BUNDLE_DIR}
  DEPENDS amk
  COMMENT "Self-contained folder: ${AMK_BUNDLE_DIR}")
install(TARGETS amk RUNTIME DESTINATION bin)
install(DIRECTORY config schemas DESTINATION share/amk)
install(DIRECTORY kernels DESTINATION share/amk FILES_MATCHING PATTERN "*.cu" PATTERN "*.cuh")
# What tests/gpu/run-suite needs beside it: `--target gpu_bundle`.
install(DIRECTORY tests/fixtures/hf DESTINATION share/amk/fixtures)
install(PROGRAMS tests/gpu/run-suite DESTINATION tests/gpu)
add_custom_target(gpu_bundle
  COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${AMK_BUNDLE_DIR}
  DEPENDS amk gpu_megakernel gpu_det_gemm amk_faults)
