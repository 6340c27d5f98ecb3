// RESP without I/O: requests however they come, and replies in both versions.
#include <cmath>
#include <limits>

#include "check.h"
#include "kv/protocol/resp.h"

using namespace verbena::kv;
using Result = RequestReader::Result;

namespace {

std::string written(int version, auto write) {
  std::string out;
  ReplyWriter writer(out, version);
  write(writer);
  return out;
}

}  // namespace

TEST("a request is read byte by byte, and nothing is looked at twice") {
  const std::string wire = "*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n";
  RequestReader reader;
  for (size_t there = 0; there < wire.size(); ++there) {
    CHECK(reader.read(std::string_view(wire).substr(0, there), {}) == Result::more);
  }
  CHECK(reader.read(wire, {}) == Result::ready);
  CHECK(reader.arguments().size() == 2);
  CHECK(reader.arguments()[1] == "a\r\nbc");
  CHECK(reader.consumed() == wire.size());
}

TEST("requests follow one another; empty ones have no words") {
  std::string wire = "*0\r\n\r\n*1\r\n$4\r\nPING\r\nECHO 'a b'\r\n";
  RequestReader reader;
  std::vector<size_t> counts;
  while (!wire.empty()) {
    CHECK(reader.read(wire, {}) == Result::ready);
    counts.push_back(reader.arguments().size());
    wire.erase(0, reader.consumed());
    reader.next();
  }
  CHECK((counts == std::vector<size_t>{0, 0, 1, 2}));
}

TEST("bounds hold before memory is found") {
  const RequestLimits few{.arguments = 2, .argument_bytes = 4, .inline_bytes = 16};
  for (const char* wire :
       {"*3\r\n", "*1\r\n$5\r\n", "*1\r\n$-1\r\n", "*1\r\n:1\r\n", "*x\r\n", "aaaaaaaaaaaaaaaaaaaaaaa",
        "*1\r\n$1\r\nab\r\n", "'a\r\n", "*99999999999999999999\r\n"}) {
    RequestReader reader;
    CHECK(reader.read(wire, few) == Result::bad);
    CHECK(reader.fault().starts_with("ERR Protocol error: "));
  }
}

TEST("a plain request is taken at once, and everything else is left to the reader") {
  const std::string wire = "*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n";
  std::string_view arguments[2];
  size_t count = 0;
  const std::string more = wire + "*1\r\n";
  CHECK(parse_whole_request(more, {}, arguments, count) == wire.size());
  CHECK(count == 2 && arguments[0] == "GET" && arguments[1] == "a\r\nbc");
  for (size_t there = 0; there < wire.size(); ++there) {
    CHECK(parse_whole_request(std::string_view(wire).substr(0, there), {}, arguments, count) == 0);
  }
  const RequestLimits few{.arguments = 2, .argument_bytes = 4, .inline_bytes = 16};
  for (const char* other :
       {"*3\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n", "*1\r\n$5\r\nabcde\r\n", "*0\r\n", "PING\r\n",
        "*1\r\n$-1\r\n", "*1\r\n$1\r\nabc", "*9999999999\r\n", "*1\n$1\r\na\r\n"}) {
    CHECK(parse_whole_request(other, few, arguments, count) == 0);
  }
}

TEST("a long value is announced, so that its place can be made ready") {
  RequestReader reader;
  CHECK(reader.read("*2\r\n$3\r\nSET\r\n$1000\r\nabc", {}) == Result::more);
  CHECK(reader.expected_bytes() == 4 + 9 + 7 + 1000 + 2);
}

TEST("replies are written in the version that the client speaks") {
  CHECK(written(2, [](auto& w) { w.null(); }) == "$-1\r\n");
  CHECK(written(3, [](auto& w) { w.null(); }) == "_\r\n");
  CHECK(written(2, [](auto& w) { w.map(2); }) == "*4\r\n");
  CHECK(written(3, [](auto& w) { w.map(2); }) == "%2\r\n");
  CHECK(written(2, [](auto& w) { w.number(1.5); }) == "$3\r\n1.5\r\n");
  CHECK(written(3, [](auto& w) { w.number(1.5); }) == ",1.5\r\n");
  CHECK(written(3, [](auto& w) { w.verbatim("x"); }) == "=5\r\ntxt:x\r\n");
  CHECK(written(2, [](auto& w) { w.error("ERR a\r\nb"); }) == "-ERR a  b\r\n");
  CHECK(written(2, [](auto& w) { w.integer(std::numeric_limits<int64_t>::min()); }) ==
        ":-9223372036854775808\r\n");
}

TEST("doubles are written as Redis writes them: 17 digits, if so many are needed") {
  CHECK(format_double(3) == "3");
  CHECK(format_double(0.25) == "0.25");
  CHECK(format_double(0.1) == "0.10000000000000001");
  CHECK(format_double(-0.0) == "-0");
  CHECK(format_double(INFINITY) == "inf");
  CHECK(format_double(1e22) == "1e+22");
}

RUN_TESTS()
