// One small wrong change to a program, of every kind that a lowering bug, a damaged file or a hostile request could make.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/random.h"
#include "core/program/program.h"

namespace amk::testing {

enum class Mutation {
  DropWait,
  LowerTarget,
  RaiseTarget,
  ZeroTarget,
  RedirectWait,
  DuplicateWait,
  SelfWait,
  DropSignal,
  RedirectSignal,
  ChangeFanIn,
  ConsistentDropSignal,
  ConsistentRedirectSignal,
  OverflowSteps,
  SwapQueue,
  MoveTask,
  MoveTaskUntidily,
  DuplicateInQueue,
  DropFromQueue,
  DuplicateTask,
  DropTask,
  SwapStream,
  DropFromStream,
  DuplicateInStream,
  ForeignInStream,
  ShortenRing,
  ChunkOverRing,
  NoWindow,
  ChangeRingBytes,
  ReduceDepth,
  AliasPage,
  MoveOffset,
  SwapOffsets,
  ShrinkStorage,
  GrowBuffer,
  ShrinkBuffer,
  ChangeSpace,
  ShrinkRead,
  ExtendRead,
  ShiftRead,
  RedirectRead,
  DropRead,
  ShrinkWrite,
  ExtendWrite,
  ShiftWrite,
  RedirectWrite,
  DropWrite,
  DuplicateWrite,
  SwapWrites,
  TaskGuard,
  RegionGuard,
  StrideChange,
  AppendOtherRow,
  ShortenCache,
  RaiseMaxSeq,
  MixSequences,
  Unalign,
  WildIndex,
  WildNumber,
};
constexpr int kMutations = static_cast<int>(Mutation::WildNumber) + 1;
std::string_view to_string(Mutation mutation);

struct Mutant {
  Program program;
  std::vector<TaskId> suspects;  // whom to hold back: the tasks that were changed, and those at the other end
};

// Empty when the program has nothing of the kind to change, or the change would change nothing.
std::optional<Mutant> mutate(const Program& program, Mutation mutation, Rng& rng);

}  // namespace amk::testing
