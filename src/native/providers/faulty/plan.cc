#include <string>
#include <utility>

#include "providers/faulty/provider.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::faulty {

size_t FaultPlan::add(FaultRule rule) {
  if (rule.nth == 0) throw Error("invalid_argument", "add fault", "nth counts from 1");
  if (rule.kind == FaultKind::fail && rule.status == Status::success) {
    throw Error("invalid_argument", "add fault", "a request cannot fail with SUCCESS");
  }
  rule.hits = 0;
  const std::lock_guard lock(mutex_);
  rows_.push_back({rule});
  return rows_.size() - 1;
}

void FaultPlan::clear() {
  const std::lock_guard lock(mutex_);
  rows_.clear();
}

uint64_t FaultPlan::hits(size_t rule) const {
  const std::lock_guard lock(mutex_);
  if (rule >= rows_.size()) {
    throw Error("out_of_range", "count faults", "the plan has no rule " + std::to_string(rule));
  }
  return rows_[rule].rule.hits;
}

std::vector<FaultRule> FaultPlan::rules() const {
  const std::lock_guard lock(mutex_);
  std::vector<FaultRule> rules;
  for (const Row& row : rows_) rules.push_back(row.rule);
  return rules;
}

std::optional<FaultRule> FaultPlan::match(Opcode opcode) {
  const std::lock_guard lock(mutex_);
  Row* hit = nullptr;
  for (Row& row : rows_) {
    if (row.rule.opcode && *row.rule.opcode != opcode) continue;
    ++row.seen;
    const bool due = row.seen >= row.rule.nth && row.seen - row.rule.nth < row.rule.count;
    if (due && !hit) hit = &row;
  }
  if (!hit) return std::nullopt;
  ++hit->rule.hits;
  return hit->rule;
}

void FaultPlan::set_clock(Clock clock) {
  const std::lock_guard lock(mutex_);
  clock_ = std::move(clock);
}

uint64_t FaultPlan::now() const {
  Clock clock;
  {
    const std::lock_guard lock(mutex_);
    clock = clock_;
  }
  return clock ? clock() : now_ns();
}

}  // namespace verbena::faulty
