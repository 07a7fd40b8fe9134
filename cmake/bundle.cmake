# `--target bundle`: build/…/bundle holds all that a machine without our packages needs to run amk and its GPU tests.
set(AMK_BUNDLE_DIR ${CMAKE_BINARY_DIR}/bundle)
add_custom_target(bundle
  COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${AMK_BUNDLE_DIR}
  DEPENDS amk
  COMMENT "Self-contained folder: ${AMK_BUNDLE_DIR}")
install(TARGETS amk RUNTIME DESTINATION bin)
install(DIRECTORY config schemas DESTINATION share/amk)
install(DIRECTORY kernels DESTINATION share/amk FILES_MATCHING PATTERN "*.cu" PATTERN "*.cuh")
