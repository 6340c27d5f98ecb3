// Requests of RESP out of any bytes: however the stream is cut, the same words come out of it, within the
// bounds that hold for the client, and nothing behind a fault.
#include <string>

#include "fuzz.h"
#include "kv/protocol/resp.h"

using verbena::kv::kUnauthenticatedLimits;
using verbena::kv::parse_whole_request;
using verbena::kv::RequestLimits;
using verbena::kv::RequestReader;

namespace {

struct Story {
  std::vector<std::vector<std::string>> requests;
  std::string fault;
  size_t used = 0;

  bool operator==(const Story&) const = default;
};

// As the engine does it: what is not whole yet is read again, with more behind it.
Story read_all(const std::string& wire, const RequestLimits& limits, size_t step) {
  RequestReader reader;
  Story story;
  for (size_t there = std::min(step, wire.size());; there = std::min(there + step, wire.size())) {
    for (bool more = false; !more;) {
      // On the heap and as long as it is: one byte beyond it is the sanitizer's.
      const std::vector<char> input(wire.begin() + static_cast<ptrdiff_t>(story.used),
                                    wire.begin() + static_cast<ptrdiff_t>(there));
      std::string_view room[8];
      size_t count = 0;
      const size_t plain =
          reader.is_fresh() ? parse_whole_request({input.data(), input.size()}, limits, room, count) : 0;
      if (plain > 0) {
        REQUIRE(plain <= input.size() && count > 0 && count <= std::min<size_t>(limits.arguments, 8));
        story.requests.emplace_back(room, room + count);
        story.used += plain;
        continue;
      }
      switch (reader.read({input.data(), input.size()}, limits)) {
        case RequestReader::Result::more:
          more = true;
          break;
        case RequestReader::Result::bad:
          REQUIRE(reader.fault().starts_with("ERR Protocol error: "));
          story.fault = reader.fault();
          return story;
        case RequestReader::Result::ready:
          REQUIRE(reader.consumed() > 0 && reader.consumed() <= input.size());
          REQUIRE(reader.arguments().size() <= std::max(limits.arguments, limits.inline_bytes));
          for (const std::string_view argument : reader.arguments()) {
            REQUIRE(argument.size() <= std::max(limits.argument_bytes, limits.inline_bytes));
          }
          story.requests.emplace_back(reader.arguments().begin(), reader.arguments().end());
          story.used += reader.consumed();
          reader.next();
      }
    }
    if (there == wire.size()) return story;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const uint8_t choice = input.byte();
  const RequestLimits small{.arguments = 4, .argument_bytes = 16, .inline_bytes = 64};
  const RequestLimits& limits = choice % 3 == 0   ? small
                                : choice % 3 == 1 ? kUnauthenticatedLimits
                                                  : RequestLimits();
  const fuzz::Bytes rest = input.rest();
  const std::string wire(reinterpret_cast<const char*>(rest.data()), rest.size());
  const Story whole = read_all(wire, limits, wire.size() + 1);
  for (const size_t step : {size_t{1}, size_t{3}, size_t{choice} + 1}) {
    const Story cut = read_all(wire, limits, step);
    REQUIRE(cut.requests == whole.requests);
    REQUIRE(cut.fault.empty() == whole.fault.empty());
  }
  return 0;
}

namespace {
void write(fuzz::Script& script, unsigned choice, std::string_view text) {
  script.byte(choice).add(text.data(), text.size());
}
}  // namespace

SEED("pipeline") {
  write(script, 2, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
}
SEED("inline-with-quotes") { write(script, 2, "set a \"b\\x00\\n\" 'c d'\r\n\r\nping\n"); }
SEED("unbalanced-quotes") { write(script, 2, "set a \"b\r\n"); }
SEED("too-many-words") { write(script, 0, "*5\r\n$1\r\na\r\n"); }
SEED("a-stranger-s-long-word") { write(script, 1, "*1\r\n$1000000\r\n"); }
SEED("negative-lengths") { write(script, 2, "*-1\r\n*0\r\n*1\r\n$-1\r\n"); }
SEED("no-end-behind-a-word") { write(script, 2, "*1\r\n$1\r\nabc\r\n"); }
SEED("not-a-number") { write(script, 2, "*x\r\n"); }
