// The knobs of a deterministic GEMM: all of them are schedule, none is numerics. JSON form is nested by the dots of the knob names.
// Value types, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/schedule/space.h"

namespace amk::det_gemm {

enum class Path {
  Wgmma,  // Hopper: TMA ring, warp-specialised wgmma, persistent
  Mma,    // mma.sync with a cp.async ring: sm_80 and newer, any alignment
  Plain,  // one warp per 16×8 outputs, the in-class reference
};
enum class RasterAlong { M, N };  // along which dimension tiles are grouped into bands
enum class Epilogue {
  Tma,     // bf16 through shared memory, stored by TMA in 16×64 boxes
  Staged,  // through shared memory, 16 bytes a lane
  Direct,  // straight from registers: any n, any stride
};
enum class L2Hint { Normal, EvictFirst, EvictLast };

enum class Producer {
  Warpgroup,  // gives its registers to the consumers
  Warp,       // one warp, registers as they are: few accumulators; small enough for two launches to share an SM
};

struct Config {
  Path path = Path::Wgmma;
  int tile_m = 128, tile_n = 256, tile_k = 64;
  int stages = 4;
  int consumers = 2;  // warpgroups that run wgmma; each takes tile_m / consumers rows
  int cluster_m = 2, cluster_n = 1;
  bool swap = false;  // put the output's columns on the 64-row side of wgmma
  RasterAlong raster = RasterAlong::M;
  int group = 8;  // tiles (of a cluster) in one band
  Epilogue epilogue = Epilogue::Tma;
  int store_buffers = 2;  // 16×64 staging buffers a warp
  L2Hint l2_x = L2Hint::Normal, l2_y = L2Hint::Normal;
  int l2_fetch = 256;  // bytes that a miss of L2 brings in; 0: what was asked
  Producer producer = Producer::Warpgroup;
  bool overlap = false;  // set up while the stream's previous kernel drains (programmatic dependent launch)
  bool defer = false;    // outputs are packed and stored while the next tile's first blocks are computed
  bool operator==(const Config&) const = default;
};

// Missing keys take the value of `defaults`; unknown keys, wrong types and values that are not choices are InvalidArgument by name.
Result<Config> parse_config(const Json& json, const Config& defaults = {});
Json to_json(const Config& config);  // canonical: every key present

// Knobs and choices, without shape-dependent constraints (plan.h adds those). `defaults` becomes the default point where its values
// are choices.
SearchSpace knob_space(const Config& defaults);
Config config_of(const SearchSpace& space, const Point& point);

// The same for many points of one space: names and values are looked up once, and a point that every rule asks about in turn is read once. A search
// asks about a hundred thousand points an evaluation.
class ConfigReader {
 public:
  explicit ConfigReader(const SearchSpace& space);
  const Config& operator()(const Point& point) const;  // until this thread reads another point

 private:
  // One of the three is set.
  struct Setting {
    int Config::*number = nullptr;
    bool Config::*flag = nullptr;
    void (*name)(Config&, std::size_t) = nullptr;
    int value = 0;
  };
  static Setting setting(std::string_view knob, const Json& choice);
  std::vector<std::vector<Setting>> settings_;  // [knob][choice]
  std::uint64_t id_;                            // no other reader has had it
};

Result<Point> point_of(const SearchSpace& space, const Config& config);

}  // namespace amk::det_gemm
