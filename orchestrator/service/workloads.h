// Opened workloads, shared between requests: opening may map a checkpoint or compute oracle logits, so the last few stay open. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/family.h"
#include "orchestrator/service/judge.h"

namespace amk {

struct Opened {
  std::shared_ptr<const Workload> workload;
  Device device = Device::Cpu;  // resolved: Cuda or Cpu
  std::string device_kind() const { return device == Device::Cuda ? "cuda" : "cpu"; }
};

class Workloads {
 public:
  Workloads(std::filesystem::path gpus_dir, Judge& judge) : gpus_dir_(std::move(gpus_dir)), judge_(judge) {}

  // `gpu`: a record's name or "auto" (the local GPU, else rtx5090). `device`: auto means cuda when the target is the local GPU, else cpu.
  // Errors name the field.
  Result<Opened> open(const std::string& model, const std::string& gpu, const std::string& device);
  Result<GpuTarget> target(const std::string& gpu);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Workload> workload;
  };
  std::filesystem::path gpus_dir_;
  Judge& judge_;
  std::mutex mutex_;
  std::list<Entry> open_;  // most recently used first
};

Result<Device> device_from(std::string_view text);

}  // namespace amk
