# amk_embed(target name files…): device sources become part of the program. Generates <name>.h/.cpp in the build folder: a function
# amk::<name>() that returns every file as {name relative to the repository, text}. A changed file rebuilds only the generated source.
function(amk_embed target name)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded)
  list(JOIN ARGN "|" joined)
  add_custom_command(OUTPUT ${out}/${name}.cpp ${out}/${name}.h
    COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DOUT=${out} -DROOT=${CMAKE_SOURCE_DIR} "-DFILES=${joined}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_script.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed_script.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${out}/${name}.cpp)
  target_include_directories(${target} PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
