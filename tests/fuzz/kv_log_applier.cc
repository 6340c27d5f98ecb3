// A stream of records from a hostile source, cut anywhere: it is applied or refused, the LSN never decreases,
// a source of some slots changes no key of other slots by one-key effects, and the keyspace stays consistent.
#include <sys/mman.h>

#include "fuzz.h"
#include "kv/journal/log_applier.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"

using namespace verbena::kv;

namespace {

// Zeroed pages that cost nothing until they are touched.
ChunkMemory pages(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return {static_cast<std::byte*>(memory), bytes,
          std::shared_ptr<void>(memory, [bytes](void* start) { munmap(start, bytes); })};
}

std::string_view view(const fuzz::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Records with correct checksums and arbitrary content.
std::string make_stream(fuzz::Input& input) {
  constexpr std::string_view kNames[] = {"SET",       "DEL",     "APPEND", "INCR",   "FLUSHALL", "FLUSHDB",
                                         "SWAPDB",    "RESTORE", "PXAT",   "EXPIRE", "GETDEL",   "MSET",
                                         "PEXPIREAT", "0",       "1",      "9"};
  std::string stream;
  uint64_t lsn = 0;
  for (int count = input.byte() % 24; count > 0; --count) {
    std::vector<std::string> texts;
    for (int arguments = input.byte() % 6; arguments > 0; --arguments) {
      const uint8_t choice = input.byte();
      if (choice >= 0xfc) {
        texts.emplace_back(size_t{8} << 10, static_cast<char>(choice));
      } else if (choice < 0x80) {
        texts.emplace_back(kNames[choice % std::size(kNames)]);
      } else {
        texts.emplace_back(view(input.take(choice % 20)));
      }
    }
    const std::vector<std::string_view> arguments(texts.begin(), texts.end());
    const uint8_t step = input.byte(), flags = input.byte() & (kMore | kEnd | kValueRecord | 16);
    lsn = step & 0x80 ? input.number<uint64_t>() : lsn + step % 3;
    const size_t at = put_record(stream, lsn, input.byte(), input.byte() % 6, flags, arguments);
    if (input.byte() & 1) {  // not the key's slot
      LogRecordHeader header;
      std::memcpy(&header, stream.data() + at, sizeof header);
      header.slot = input.number<uint16_t>();
      std::memcpy(stream.data() + at, &header, sizeof header);
    }
    seal_record(stream, at, kStreamSeed);
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const uint8_t choice = input.byte();
  Engine engine(4, pages);
  engine.refresh_time();
  std::unique_ptr<SlotSet> slots;
  if (choice & 1) {
    slots = std::make_unique<SlotSet>();
    for (uint32_t i = 0; i < kSlotCount; i += 2) slots->set(i);
  }
  LogApplier applier(
      engine, [choice](uint32_t, Arguments arguments) { return !arguments.empty() && (choice & 2) != 0; }, 0,
      std::move(slots));
  std::string stream = choice & 4 ? std::string(view(input.take(400))) : make_stream(input);
  for (int changes = input.byte() % 3; changes > 0 && !stream.empty(); --changes) {
    stream[input.number<uint16_t>() % stream.size()] = static_cast<char>(input.byte());
  }
  uint64_t lsn = 0;
  const bool stages = (choice & 16) != 0;
  try {
    for (std::string_view left = stream; !left.empty();) {
      const size_t piece = std::min<size_t>(left.size(), 1 + input.byte() * (choice & 8 ? 1
                                                                             : stages   ? 256
                                                                                        : 16));
      // A copy of exact length, so that sanitizers detect reads beyond it.
      const fuzz::Bytes exact(reinterpret_cast<const std::byte*>(left.data()),
                              reinterpret_cast<const std::byte*>(left.data()) + piece);
      StagedValues staged(engine);
      fuzz::Bytes copy = exact;
      if (stages) {
        applier.stage(view(exact), staged);
        const uint32_t sum = staged.fill(1, view(exact), reinterpret_cast<char*>(copy.data()));
        REQUIRE(copy == exact && sum == verbena::crc32c(1, exact.data(), exact.size()));
      }
      REQUIRE(applier.apply(view(copy), false, stages ? &staged : nullptr) >= lsn);
      lsn = applier.lsn();
      left.remove_prefix(piece);
    }
  } catch (const verbena::Error& error) {
    REQUIRE(error.code() == "log_failed" || error.code() == "no_memory");
  }
  REQUIRE(applier.lsn() >= lsn);
  size_t keys = 0, sizes = 0;
  for (uint32_t i = 0; i < engine.keyspace.databases(); ++i) {
    if (!engine.keyspace.exists(i)) continue;
    sizes += engine.keyspace.database(i).size();
    uint64_t cursor = 0;
    do {
      cursor = engine.keyspace.database(i).scan(cursor, 100, [&](Entry entry) {
        ++keys;
        REQUIRE(entry.key().size() + entry.value().size() <= stream.size() + 64);
      });
    } while (cursor != 0);
  }
  REQUIRE(keys == sizes);
  return 0;
}

SEED("sets") {
  script.byte(0).byte(3);
  for (int i = 0; i < 3; ++i) {
    script.byte(3).byte(0).byte(0x81).add("a", 1).byte(0x82).add("bc", 2);
    script.byte(1).byte(0).byte(1).byte(0).byte(0);
  }
  script.byte(0).byte(255);
}

SEED("long-values-in-their-place") {
  script.byte(16).byte(3);
  for (int i = 0; i < 3; ++i) {
    script.byte(3).byte(0).byte(0x81).add("a", 1).byte(0xfc);
    script.byte(1).byte(0).byte(1).byte(0).byte(0);
  }
  script.byte(0);
  for (int i = 0; i < 8; ++i) script.byte(255);
}

SEED("a-group-cut-in-pieces") {
  script.byte(8).byte(3);
  for (int i = 0; i < 3; ++i) {
    script.byte(3).byte(2).byte(0x81).add("a", 1).byte(0x82).add("bc", 2);
    script.byte(1).byte(i < 2 ? kMore : 0).byte(1).byte(0).byte(0);
  }
  script.byte(0).byte(7).byte(7).byte(30);
}

SEED("another-slot") {
  script.byte(1).byte(1).byte(3).byte(0).byte(0x81).add("a", 1).byte(0x82).add("bc", 2);
  script.byte(1).byte(0).byte(1).byte(0).byte(1).number(uint16_t{4}).byte(0).byte(255);
}

SEED("any-bytes") { script.byte(4).add("0123456789012345678901234567890123456789", 40); }
