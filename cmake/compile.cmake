# Compiler settings of every target, and the two helpers with which folders declare libraries and test programs.
add_library(amk_flags INTERFACE)
target_compile_options(amk_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -fno-math-errno -ffp-contract=off)
# GCC 12 warns of overlapping copies in its own std::string for "text" + std::to_string(n) (GCC bug 105651, fixed in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(amk_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC takes a source that is included by the generated one for a header, where types of an unnamed namespace would be a fault.
  target_compile_options(amk_flags INTERFACE -Wno-subobject-linkage)
endif()
if(AMK_WERROR)
  target_compile_options(amk_flags INTERFACE -Werror)
endif()
target_include_directories(amk_flags INTERFACE ${CMAKE_SOURCE_DIR})
# One binary that runs on a machine without our compiler's runtime.
target_link_options(amk_flags INTERFACE -static-libstdc++ -static-libgcc)
if(AMK_SANITIZE)
  string(REPLACE ";" "," sanitizers "${AMK_SANITIZE}")
  target_compile_options(amk_flags INTERFACE -fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(amk_flags INTERFACE -fsanitize=${sanitizers})
endif()
if(AMK_FUZZ)
  # Coverage counters in every library; the targets alone link libFuzzer's main. GCC 12's std::source_location needs a shim under clang < 16.
  target_compile_options(amk_flags INTERFACE -fsanitize=fuzzer-no-link -O1 -gline-tables-only -Wno-unknown-warning-option
    -include ${CMAKE_SOURCE_DIR}/cmake/clang14_source_location.h)
endif()

# amk_library(name DEPENDS libs…): a static library of every .cpp directly in this folder.
function(amk_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(excluded ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${excluded})
  endforeach()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC amk_flags ${ARG_DEPENDS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE amk_flags ${ARG_DEPENDS})
  endif()
endfunction()

# What is tested is built as it is shipped; the tests' own code need not be: -O3 takes a third longer to compile it.
function(amk_test_options name)
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# amk_test(name SUITE suite DEPENDS libs…): a doctest program of every .cpp directly in this folder, run by `./check <suite>`. Its sources are
# compiled together.
function(amk_test name)
  cmake_parse_arguments(ARG "" "SUITE" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE amk_flags amk_doctest_main ${ARG_DEPENDS})
  target_compile_definitions(${name} PRIVATE AMK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  amk_test_options(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 16 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${ARG_SUITE})
  add_test(NAME ${ARG_SUITE}/${name} COMMAND ${name})
  set_tests_properties(${ARG_SUITE}/${name} PROPERTIES LABELS ${ARG_SUITE} TIMEOUT 600)
endfunction()

# amk_bench(name DEPENDS libs…): a benchmark program of every .cpp directly in this folder; prints JSON lines, run by bench/run.
function(amk_bench name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(bench_${name} ${sources})
  target_link_libraries(bench_${name} PRIVATE amk_flags ${ARG_DEPENDS})
  target_compile_definitions(bench_${name} PRIVATE AMK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench/bin)
endfunction()
