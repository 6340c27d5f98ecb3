// Received bytes: lines and values come out as they went in, however they were cut into pieces, and a reply
// that was read in part can be read again.
#include <random>
#include <string>

#include "check.h"
#include "kv/client/received_bytes.h"

using verbena::kv::ReceivedBytes;
using verbena::transport::Bytes;

namespace {

std::string read(ReceivedBytes& bytes, size_t length) {
  std::string out(length, '\0');
  bytes.read(out.data(), length);
  return out;
}

void lines_and_values() {
  ReceivedBytes bytes;
  std::string_view line;
  CHECK(!bytes.read_line(line));
  bytes.append(std::string_view("$5\r"));
  CHECK(!bytes.read_line(line));
  CHECK(bytes.unread() == 3);
  bytes.append(Bytes(std::string_view("\nhello\r\n+O")));
  CHECK(bytes.read_line(line) && line == "$5");
  CHECK(read(bytes, 7) == "hello\r\n");
  CHECK(!bytes.read_line(line));
  bytes.append(std::string_view("K\r\n"));
  CHECK(bytes.read_line(line) && line == "+OK");
  CHECK(bytes.unread() == 0);
}

void what_was_read_can_be_read_again_until_it_is_dropped() {
  ReceivedBytes bytes;
  std::string_view line;
  bytes.append(std::string_view("*2\r\n"));
  const size_t start = bytes.position();
  CHECK(bytes.read_line(line));
  bytes.append(Bytes(std::string_view(":1\r\n")));
  CHECK(bytes.read_line(line) && line == ":1");
  bytes.rewind(start);
  CHECK(bytes.unread() == 8);
  CHECK(bytes.contiguous() == "*2\r\n:1\r\n");
  CHECK(bytes.read_line(line) && line == "*2");
  const size_t middle = bytes.position();
  bytes.drop_read();
  CHECK(bytes.read_line(line) && line == ":1");
  bytes.drop_read();
  bytes.rewind(middle);  // is gone, or read by another reply: never before what was kept
  CHECK(bytes.unread() <= 4);
}

void any_cut_gives_the_same_bytes() {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string whole;
    for (int i = 0; i < 50; ++i) whole += "line " + std::to_string(random() % 1000) + "\r\n";
    ReceivedBytes bytes;
    std::string found;
    for (size_t at = 0; at < whole.size();) {
      const std::string_view part = std::string_view(whole).substr(at, 1 + random() % 40);
      at += part.size();
      random() % 2 ? bytes.append(part) : bytes.append(Bytes(part));
      std::string_view line;
      while (bytes.read_line(line)) found += std::string(line) + "\r\n";
      if (random() % 3 == 0) bytes.drop_read();
      if (random() % 5 == 0) CHECK(bytes.contiguous().size() == bytes.unread());
    }
    CHECK(found == whole);
    CHECK(bytes.unread() == 0);
  }
}

}  // namespace

int main() {
  lines_and_values();
  what_was_read_can_be_read_again_until_it_is_dropped();
  any_cut_gives_the_same_bytes();
}
