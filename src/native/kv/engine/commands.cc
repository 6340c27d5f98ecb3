#include "kv/engine/commands.h"

#include <cstring>
#include <limits>

namespace verbena::kv {

std::vector<NativeCommand> native_commands() {
  std::vector<NativeCommand> all;
  for (const auto commands : {string_commands(), key_commands()}) {
    all.insert(all.end(), commands.begin(), commands.end());
  }
  return all;
}

CommandTable::CommandTable() : all_(native_commands()) {
  for (NativeCommand& command : all_) {
    const Name name = fold(command.name);
    size_t at = place(name);
    while (rows_[at].command) at = (at + 1) % kRoom;
    rows_[at] = {name, &command};
  }
}

CommandTable::Name CommandTable::fold(std::string_view name) {
  char text[kLongest] = {};
  std::memcpy(text, name.data(), name.size());
  Name folded;
  std::memcpy(&folded, text, sizeof folded);
  // Clearing bit 0x20 converts lower case to upper case. The names of native commands consist of letters
  // only, so no two of them become equal.
  constexpr uint64_t kCapitals = ~uint64_t{0x2020202020202020};
  folded.low &= kCapitals;
  folded.high &= kCapitals;
  return folded;
}

NativeCommand* CommandTable::find(std::string_view name) const {
  if (name.size() > kLongest || name.empty()) return nullptr;
  const Name folded = fold(name);
  for (size_t at = place(folded); rows_[at].command; at = (at + 1) % kRoom) {
    // The length is compared too because trailing spaces fold to zero bytes.
    if (rows_[at].name == folded && rows_[at].command->name.size() == name.size()) return rows_[at].command;
  }
  return nullptr;
}

void erase_key(CommandCall& call, Entry entry, std::string_view key) {
  const std::string_view effect[] = {"DEL", key};
  call.prepare(key, effect);
  if (entry) call.database.erase(entry);
  call.changed(key, effect, 'g', "del");
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t number;
  if (text.empty() || (text[0] == '0' && text.size() > 1)) return std::nullopt;
  if (text[0] == '-' && (text.size() < 2 || text[1] == '0')) return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<uint64_t> parse_expiry(CommandCall& call, std::string_view argument, bool seconds,
                                     bool absolute, const char* command) {
  const auto number = parse_integer(argument);
  if (!number) {
    call.error(kNotAnInteger);
    return std::nullopt;
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t ms = *number;
  const auto now = static_cast<int64_t>(call.keyspace.now_ms());
  const bool fits = (!seconds || (ms <= kMost / 1000 && ms >= -(kMost / 1000))) &&
                    (absolute || (seconds ? ms * 1000 : ms) <= kMost - now);
  if (seconds && fits) ms *= 1000;
  if (fits && !absolute) ms += now;
  if (!fits || (command[0] != '!' && *number <= 0)) {
    call.error("ERR invalid expire time in '" + std::string(command[0] == '!' ? command + 1 : command) +
               "' command");
    return std::nullopt;
  }
  return ms <= 0 ? 1 : static_cast<uint64_t>(ms);  // 0 would mean that the key never expires
}

}  // namespace verbena::kv
