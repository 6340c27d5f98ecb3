// Captured messages as pcapng blocks: whole, aligned, bounded.
#include "transport/capture/capture.h"

#include <cstring>
#include <string>

#include "check.h"

using namespace verbena;
using namespace verbena::transport;

namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

uint32_t word(const std::vector<std::byte>& block, size_t at) {
  uint32_t value;
  std::memcpy(&value, block.data() + at, sizeof value);
  return value;
}

}  // namespace

TEST("a block is complete and aligned for every message length") {
  for (size_t length = 0; length < 9; ++length) {
    Capture capture(1000, 1000);
    capture.record(Direction::received, 7, "iwarp", bytes(std::string(length, 'x')));
    const auto block = capture.take();
    CHECK(block.size() % 4 == 0);
    CHECK(word(block, 4) == block.size());
    CHECK(word(block, block.size() - 4) == block.size());
    CHECK(word(block, 20) == sizeof(CaptureHeader) + length);
    CHECK(word(block, 24) == sizeof(CaptureHeader) + length);
  }
}

TEST("a message longer than the limit is truncated, and its full length is recorded") {
  Capture capture(40, 1000);
  capture.record(Direction::sent, 7, "a wire with a long name", bytes(std::string(500, 'x')));
  const auto block = capture.take();
  CHECK(word(block, 20) == sizeof(CaptureHeader) + 40);
  CHECK(word(block, 24) == sizeof(CaptureHeader) + 500);
  CaptureHeader header;
  std::memcpy(static_cast<void*>(&header), block.data() + 28, sizeof header);
  CHECK(header.length == 500 && header.session == 7 && header.direction == Direction::sent);
  CHECK(std::string(header.wire, sizeof header.wire) == "a wire w");
}

TEST("a one-sided operation has its address, status and the beginning of its data") {
  const auto kept = [](size_t snap_bytes, size_t length) {
    Capture capture(snap_bytes, 10'000);
    capture.record(Captured::read, 7, "shm", {.remote_addr = 0x1234, .rkey = 5, .status = Status::rem_op_err},
                   bytes(std::string(length, 'x')));
    const auto block = capture.take();
    CHECK(word(block, 4) == block.size() && block.size() % 4 == 0);
    CHECK(word(block, 24) == sizeof(CaptureHeader) + sizeof(CapturedOperation) + length);
    CaptureHeader header;
    std::memcpy(static_cast<void*>(&header), block.data() + 28, sizeof header);
    CHECK(header.kind == Captured::read && header.direction == Direction::received &&
          header.length == length);
    CapturedOperation operation;
    std::memcpy(static_cast<void*>(&operation), block.data() + 28 + sizeof header, sizeof operation);
    CHECK(operation.remote_addr == 0x1234 && operation.rkey == 5 && operation.status == Status::rem_op_err);
    return word(block, 20) - sizeof header - sizeof operation;
  };
  CHECK(kept(1 << 20, 0) == 0 && kept(1 << 20, 100) == 100 && kept(1 << 20, 5000) == Capture::kMaxData);
  CHECK(kept(40, 100) == 0);
}

TEST("messages are dropped and counted while the buffer is full, and captured again after take()") {
  Capture capture(100, 250);
  for (int i = 0; i < 10; ++i) capture.record(Direction::sent, 1, "shm", bytes(std::string(40, 'x')));
  CHECK(capture.packets() == 10 && capture.dropped() == 8);
  CHECK(capture.take().size() == 2 * 108);
  CHECK(capture.take().empty());
  capture.record(Direction::sent, 1, "shm", bytes("y"));
  CHECK(capture.dropped() == 8 && !capture.take().empty());
}

RUN_TESTS()
