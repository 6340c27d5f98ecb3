// Any bytes as a segment or snapshot: they are read or refused, and no LSN is read twice. Written records are
// read back; after changes to the bytes, no record is read back changed.
#include "fuzz.h"
#include "kv/journal/recovery.h"

using namespace verbena::kv;

namespace {

void look(std::string_view file, LogReader::Kind kind) {
  const FileReport report = examine(file, kind);
  REQUIRE(report.whole_bytes <= file.size());
  if (!report.readable) return;
  REQUIRE(!report.fault.empty() || report.whole_bytes == file.size());
  LogReader reader(file, kind);
  uint64_t lsn = reader.header().first_lsn - 1, records = 0;
  while (reader.next()) {
    REQUIRE(reader.position() <= file.size());
    if (reader.record().is_mark() || reader.record().is_end()) continue;
    REQUIRE(!reader.arguments().empty());
    REQUIRE(kind == LogReader::Kind::log ? reader.record().lsn == lsn + 1 : reader.record().lsn >= lsn);
    lsn = reader.record().lsn;
    ++records;
  }
  REQUIRE(reader.fault().empty() == report.fault.empty() || reader.position() == file.size());
  REQUIRE(report.records <= records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const uint8_t choice = input.byte();
  const auto kind = choice & 1 ? LogReader::Kind::snapshot : LogReader::Kind::log;
  LogFileHeader header = make_header(choice & 1 ? kSnapshotMagic : kLogMagic, 1 + (choice >> 1 & 3), 0, 1, 0);
  std::string file(reinterpret_cast<const char*>(&header), sizeof header);
  if (choice & 0x80) {
    const fuzz::Bytes rest = input.rest();
    file.append(reinterpret_cast<const char*>(rest.data()), rest.size());
    look(file, kind);
    if (rest.size() >= sizeof header) look(std::string_view(file).substr(sizeof header), kind);
    return 0;
  }
  // Written records, then a few changed bytes.
  uint64_t lsn = header.first_lsn - 1;
  std::vector<std::string> written;
  for (int count = input.byte() % 12; count > 0; --count) {
    std::vector<std::string> texts;
    for (int arguments = input.byte() % 5; arguments > 0; --arguments) {
      const fuzz::Bytes argument = input.take(input.byte() % 40);
      texts.emplace_back(reinterpret_cast<const char*>(argument.data()), argument.size());
    }
    std::vector<std::string_view> views(texts.begin(), texts.end());
    const uint8_t flags = views.empty() ? kMark : input.byte() & kMore;
    const size_t at = put_record(file, flags & kMark ? lsn : ++lsn, 1, input.byte() % 16, flags, views);
    seal_record(file, at, seed_of(header.id));
    written.push_back(file.substr(at));
  }
  const std::string right = file;
  for (int changes = input.byte() % 4; changes > 0; --changes) {
    file[input.number<uint16_t>() % file.size()] = static_cast<char>(input.byte());
  }
  if (input.byte() & 1) file.resize(input.number<uint16_t>() % (file.size() + 1));
  look(file, kind);
  if (!header_fault(file, choice & 1 ? kSnapshotMagic : kLogMagic).empty()) return 0;
  LogReader reader(file, kind);
  while (reader.next()) {
    const LogRecord& record = reader.record();
    REQUIRE(right.compare(record.offset, record.bytes, file, record.offset, record.bytes) == 0);
  }
  return 0;
}

SEED("records") {
  script.byte(0).byte(3);
  for (int i = 0; i < 3; ++i)
    script.byte(3).byte(3).add("SET", 3).byte(1).add("a", 1).byte(2).add("bc", 2).byte(0).byte(1);
  script.byte(0).byte(0);
}

SEED("a-mark-and-a-change") {
  script.byte(2).byte(4);
  for (int i = 0; i < 2; ++i) script.byte(2).byte(3).add("DEL", 3).byte(1).add("a", 1).byte(1).byte(0);
  script.byte(0).byte(0);
  script.byte(2).byte(3).add("DEL", 3).byte(1).add("b", 1).byte(0).byte(0);
  script.byte(1).number(uint16_t{100}).byte(0x55).byte(1).number(uint16_t{180});
}

SEED("any-bytes") { script.byte(0x80).add("0123456789012345678901234567890123456789", 40); }
