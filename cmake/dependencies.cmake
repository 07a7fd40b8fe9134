# Debian and Ubuntu packages (the launcher installs them); statically linked where a static archive is shipped.
find_package(Threads REQUIRED)
find_path(TL_EXPECTED_INCLUDE tl/expected.hpp REQUIRED)
find_path(NLOHMANN_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(DOCTEST_INCLUDE doctest/doctest.h)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(BOOST_BEAST_INCLUDE boost/beast.hpp REQUIRED)  # header-only; server/http/beast_* alone sees it
find_path(SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
find_library(XXHASH_STATIC libxxhash.a REQUIRED)
find_library(SQLITE_STATIC libsqlite3.a REQUIRED)

add_library(amk_sqlite INTERFACE)
target_link_libraries(amk_sqlite INTERFACE ${SQLITE_STATIC} Threads::Threads ${CMAKE_DL_LIBS} m)

# Debian ships no static spdlog or fmt: both are used header-only.
add_library(amk_spdlog INTERFACE)
target_compile_definitions(amk_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
