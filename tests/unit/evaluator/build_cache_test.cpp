#include "kernels/evaluator/build_cache.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <locale>
#include <thread>

using namespace amk;
namespace fs = std::filesystem;

namespace {

struct TempDir {
  fs::path path;
  TempDir() {
    std::string text = (fs::temp_directory_path() / "amk-cache-XXXXXX").string();
    path = mkdtemp(text.data());
  }
  ~TempDir() { fs::remove_all(path); }
};

// "Machine code" is a function of the request, so that a wrong entry shows.
class FakeCompiler final : public Compiler {
 public:
  explicit FakeCompiler(std::string version = "13.0", std::size_t bytes = 100) : version_(std::move(version)), bytes_(bytes) {}
  std::string version() const override { return version_; }
  Result<CompiledKernel> compile(const CompileRequest& request) const override {
    ++compiled;
    if (request.source == "broken") return fail(ErrorKind::InvalidArgument, "does not compile");
    CompiledKernel kernel;
    kernel.cubin.assign(bytes_, static_cast<std::byte>(request.source.size()));
    kernel.log = "log of " + request.source;
    return kernel;
  }
  mutable std::atomic<int> compiled{0};

 private:
  std::string version_;
  std::size_t bytes_;
};

CompileRequest request_of(std::string source) {
  CompileRequest request;
  request.name = "t.cu";
  request.source = std::move(source);
  request.architecture = "sm_90a";
  return request;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".cubin") found.push_back(entry.path());
  }
  return found;
}

}  // namespace

TEST_CASE("build cache: second build of equal content compiles nothing") {
  TempDir dir;
  const auto cache = BuildCache::open(dir.path / "a" / "b");
  REQUIRE(cache);
  FakeCompiler compiler;
  const auto first = cache->build(compiler, request_of("abc"));
  const auto second = cache->build(compiler, request_of("abc"));
  REQUIRE(first);
  REQUIRE(second);
  CHECK_FALSE(first->cached);
  CHECK(second->cached);
  CHECK(compiler.compiled == 1);
  CHECK(second->kernel.cubin == first->kernel.cubin);
  CHECK(second->kernel.log == "log of abc");
}

TEST_CASE("build cache: every part of the content is in the key") {
  CompileRequest base = request_of("s");
  base.headers = {{"h", "text"}};
  base.options = {"-DA=1", "-DB=2"};
  const std::string key = BuildCache::key("13.0", base);
  CHECK(key == BuildCache::key("13.0", base));
  CHECK(key != BuildCache::key("12.8", base));
  CompileRequest other = base;
  other.architecture = "sm_90";
  CHECK(key != BuildCache::key("13.0", other));
  other = base;
  other.source = std::string("t");
  CHECK(key != BuildCache::key("13.0", other));
  other = base;
  other.headers[0].second = "texu";
  CHECK(key != BuildCache::key("13.0", other));
  other = base;
  other.headers = {{"ht", "ext"}};  // same concatenation
  CHECK(key != BuildCache::key("13.0", other));
  other = base;
  other.options = {"-DA=1-DB=2"};
  CHECK(key != BuildCache::key("13.0", other));
  other = base;
  other.name = "u.cu";  // only diagnostics
  CHECK(key == BuildCache::key("13.0", other));
}

TEST_CASE("build cache: a failed compilation is reported and not stored") {
  TempDir dir;
  const auto cache = BuildCache::open(dir.path);
  REQUIRE(cache);
  FakeCompiler compiler;
  CHECK_FALSE(cache->build(compiler, request_of("broken")));
  CHECK(entries(dir.path).empty());
}

TEST_CASE("build cache: any damaged byte makes an entry absent, and it is rebuilt") {
  TempDir dir;
  const auto cache = BuildCache::open(dir.path);
  REQUIRE(cache);
  FakeCompiler compiler;
  REQUIRE(cache->build(compiler, request_of("abc")));
  const fs::path path = entries(dir.path).at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  in.close();
  int damaged = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string text = whole;
    text[i] = static_cast<char>(text[i] ^ 0x10);
    std::ofstream(path, std::ios::binary) << text;
    const auto found = cache->find(path.stem().string());
    damaged += found ? 0 : 1;
  }
  CHECK(damaged == static_cast<int>(whole.size()));
  for (const std::size_t cut : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, cut);
    CHECK_FALSE(cache->find(path.stem().string()));
  }
  const auto again = cache->build(compiler, request_of("abc"));
  REQUIRE(again);
  CHECK_FALSE(again->cached);
  CHECK(cache->build(compiler, request_of("abc"))->cached);
}

TEST_CASE("build cache: total size is bounded and the least recently used go first") {
  TempDir dir;
  const auto cache = BuildCache::open(dir.path, BuildCache::Limits{3500});
  REQUIRE(cache);
  FakeCompiler compiler("13.0", 1000);
  std::vector<std::string> keys;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(cache->build(compiler, request_of(std::string(static_cast<std::size_t>(i + 1), 'x'))));
    keys.push_back(BuildCache::key("13.0", request_of(std::string(static_cast<std::size_t>(i + 1), 'x'))));
    // File times as if the builds were minutes apart.
    fs::last_write_time(dir.path / (keys.back() + ".cubin"), fs::file_time_type::clock::now() - std::chrono::minutes(30 - i));
  }
  REQUIRE(cache->find(keys[0]));  // used: now the youngest
  REQUIRE(cache->build(compiler, request_of("yyyy")));
  CHECK(cache->find(keys[0]));
  CHECK_FALSE(cache->find(keys[1]));
  std::int64_t total = 0;
  for (const auto& path : entries(dir.path)) total += static_cast<std::int64_t>(fs::file_size(path));
  CHECK(total <= 3500);
}

TEST_CASE("build cache: leftovers of killed processes go, fresh temporary files of live ones stay") {
  TempDir dir;
  const auto cache = BuildCache::open(dir.path);
  REQUIRE(cache);
  std::ofstream(dir.path / "k.tmp-1-2") << "old";
  std::ofstream(dir.path / "k.cubin.partial") << "old";
  std::ofstream(dir.path / "l.cubin.partial") << "new";
  for (const char* old : {"k.tmp-1-2", "k.cubin.partial"})
    fs::last_write_time(dir.path / old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  FakeCompiler compiler;
  REQUIRE(cache->build(compiler, request_of("abc")));
  CHECK_FALSE(fs::exists(dir.path / "k.tmp-1-2"));
  CHECK_FALSE(fs::exists(dir.path / "k.cubin.partial"));
  CHECK(fs::exists(dir.path / "l.cubin.partial"));
}

TEST_CASE("build cache: a folder that cannot be made is an Io error naming it") {
  TempDir dir;
  std::ofstream(dir.path / "file") << "x";
  const auto cache = BuildCache::open(dir.path / "file" / "cache");
  REQUIRE_FALSE(cache);
  CHECK(cache.error().kind == ErrorKind::Io);
  CHECK(cache.error().message.find("file") != std::string::npos);
}

TEST_CASE("build cache: processes and threads that build, find and evict at once never see a wrong entry") {
  TempDir dir;
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      std::atomic<bool> good{true};
      std::vector<std::thread> threads;
      for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
          FakeCompiler compiler("13.0", 700);
          const auto cache = BuildCache::open(dir.path, BuildCache::Limits{4000});
          for (int i = 0; i < 60 && good; ++i) {
            const auto size = static_cast<std::size_t>(1 + (i * 7 + p + t) % 9);
            const auto built = cache->build(compiler, request_of(std::string(size, 'z')));
            if (!built || built->kernel.cubin.size() != 700 || built->kernel.cubin[699] != static_cast<std::byte>(size)) good = false;
          }
        });
      }
      for (auto& thread : threads) thread.join();
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  for (const auto& entry : fs::directory_iterator(dir.path)) CHECK(entry.path().extension() != ".partial");
}

TEST_CASE("build cache: a process whose locale groups digits keeps and finds what one without does") {
  struct Grouped final : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  struct Restored {
    std::locale before = std::locale();
    ~Restored() { std::locale::global(before); }
  } restored;
  const TempDir plain, grouped;
  const FakeCompiler compiler("13.0", 123'456);  // six digits
  REQUIRE(BuildCache::open(plain.path)->build(compiler, request_of("a")));
  std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const auto cache = BuildCache::open(grouped.path);
  REQUIRE(cache);
  REQUIRE(cache->build(compiler, request_of("a")));
  REQUIRE(cache->build(compiler, request_of("a")));
  CHECK(compiler.compiled == 2);  // one a folder
  const auto bytes = [](const TempDir& folder) {
    const auto found = entries(folder.path);
    REQUIRE(found.size() == 1);
    std::ifstream in(found.front(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK(bytes(plain) == bytes(grouped));
}
