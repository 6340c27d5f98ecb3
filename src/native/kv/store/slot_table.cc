#include "kv/store/slot_table.h"

#include "kv/journal/log_record.h"
#include "util/clock.h"

namespace verbena::kv {

namespace {

constexpr std::string_view kCrossSlot = "CROSSSLOT Keys in request don't hash to the same slot";
constexpr std::string_view kTryAgain = "TRYAGAIN Multiple keys request during rehashing of slot";

std::string redirect(const char* argument, uint32_t slot, const std::string& address) {
  return std::string(argument) + " " + std::to_string(slot) + " " + address;
}

}  // namespace

SlotTable::Verdict SlotTable::check(const Client& client, Database& database, Arguments arguments,
                                    KeySpec spec, bool writes, std::string& error) const {
  if (spec.step == 0) return Verdict::serve;
  const auto count = static_cast<int>(arguments.size());
  const int last = spec.last < 0 ? count + spec.last : spec.last;
  if (spec.first >= count || last >= count) return Verdict::serve;  // the command replies with an arity error
  const uint16_t slot = key_slot(arguments[static_cast<size_t>(spec.first)]);
  const auto refuse = [&](std::string text) {
    error = std::move(text);
    return Verdict::refuse;
  };
  size_t missing = 0, present = 0;
  const bool looks = migrating[slot] != 0 || importing[slot];
  for (int at = spec.first; at <= last; at += spec.step) {
    const std::string_view key = arguments[static_cast<size_t>(at)];
    if (at != spec.first && key_slot(key) != slot) return refuse(std::string(kCrossSlot));
    if (looks) ++(database.find(key, false) ? present : missing);
  }
  if (fenced[slot]) return Verdict::hold;
  const uint16_t owner = owners[slot];
  if (owner == kThisNode) {
    if (lease_ends_ns != 0 && now_ns() >= lease_ends_ns) {
      return refuse("CLUSTERDOWN the node's lease has ended: it may have been replaced");
    }
    if (migrating[slot] == 0 || missing == 0) return Verdict::serve;
    if (present > 0) return refuse(std::string(kTryAgain));
    return refuse(redirect("ASK", slot, addresses[migrating[slot]]));
  }
  if (importing[slot] && client.asking) {
    return missing > 0 && missing + present > 1 ? refuse(std::string(kTryAgain)) : Verdict::serve;
  }
  if (owner == kUnassigned) return refuse("CLUSTERDOWN Hash slot not served");
  if (owner == primary && client.reads_replica && !writes) return Verdict::serve;
  return refuse(redirect("MOVED", slot, addresses[owner]));
}

}  // namespace verbena::kv
