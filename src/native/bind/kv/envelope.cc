// _native.kv: the kinds and flags of envelopes, and functions that pack and parse their headers.
#include "kv/migration/envelope.h"

#include <nanobind/stl/string.h>

#include <optional>

#include "bind/buffer.h"
#include "bind/kv/store.h"
#include "bind/unlocked.h"
#include "util/error.h"

namespace verbena::bind {
namespace {

constexpr size_t kLong = 64u << 10;  // longer payloads are summed without the GIL

template <size_t size>
void copy_id(uint8_t (&to)[size], const nb::bytes& id) {
  if (id.size() != size) throw nb::value_error("an id has the wrong length");
  std::memcpy(to, id.c_str(), size);
}

template <size_t size>
nb::bytes id_bytes(const uint8_t (&id)[size]) {
  return nb::bytes(id, size);
}

nb::bytes pack_envelope_header(kv::EnvelopeKind kind, const nb::bytes& source, const nb::bytes& target,
                               uint16_t first_slot, uint16_t last_slot, const nb::bytes& migration,
                               const nb::handle& payload, uint16_t flags, uint32_t segment, uint64_t offset,
                               uint64_t total, uint64_t sequence, uint64_t boot_epoch) {
  kv::EnvelopeHeader header{.kind = kind,
                            .flags = flags,
                            .first_slot = first_slot,
                            .last_slot = last_slot,
                            .segment = segment,
                            .offset = offset,
                            .total = total,
                            .sequence = sequence,
                            .boot_epoch = boot_epoch};
  copy_id(header.source, source);
  copy_id(header.target, target);
  copy_id(header.migration, migration);
  const BufferView view(payload, PyBUF_SIMPLE);
  if (view.size() > kv::envelope::kLongestPayload) throw nb::value_error("the payload is too long");
  {
    std::optional<Unlocked> unlocked;
    if (view.size() > kLong) unlocked.emplace();
    kv::envelope::complete(header, {reinterpret_cast<const char*>(view.data()), view.size()});
  }
  return nb::bytes(&header, sizeof header);
}

nb::bytes answer_envelope(const nb::handle& message, const nb::handle& payload, bool refused) {
  const BufferView request(message, PyBUF_SIMPLE);
  const BufferView view(payload, PyBUF_SIMPLE);
  if (view.size() > kv::envelope::kLongestPayload) throw nb::value_error("the payload is too long");
  kv::EnvelopeHeader header{};
  if (request.size() < sizeof header) throw nb::value_error("the message is shorter than a header");
  std::memcpy(&header, request.data(), sizeof header);
  const std::string bytes =
      kv::envelope::answer(header, refused, {reinterpret_cast<const char*>(view.data()), view.size()});
  return nb::bytes(bytes.data(), bytes.size());
}

nb::tuple parse_envelope(const nb::handle& data) {
  const BufferView view(data, PyBUF_SIMPLE);
  const std::span<const std::byte> bytes(view.data(), view.size());
  kv::EnvelopeHeader header{};
  std::string fault = kv::envelope::read(bytes, header);
  if (fault.empty()) {
    std::optional<Unlocked> unlocked;
    if (view.size() > kLong) unlocked.emplace();
    if (!kv::envelope::has_valid_checksum(header, bytes.subspan(sizeof header))) {
      fault = kv::envelope::kWrongChecksum;
    }
  }
  if (!fault.empty()) throw Error("bad_envelope", "read an envelope", fault);
  return nb::make_tuple(header.kind, id_bytes(header.source), id_bytes(header.target), header.first_slot,
                        header.last_slot, id_bytes(header.migration), header.flags, header.segment,
                        header.offset, header.total, header.sequence, header.boot_epoch);
}

}  // namespace

void bind_kv_envelope(nb::module_& m) {
  using Kind = kv::EnvelopeKind;
  nb::enum_<Kind>(m, "EnvelopeKind", nb::is_arithmetic(),
                  "The type of a message. docs/reference/wire-formats.md explains each.")
      .value("OFFER", Kind::offer)
      .value("SEGMENT", Kind::segment)
      .value("TAIL", Kind::tail)
      .value("DIGEST", Kind::digest)
      .value("OWN", Kind::own)
      .value("ABORT", Kind::abort)
      .value("GOSSIP", Kind::gossip)
      .value("WINDOWS", Kind::windows)
      .value("NOTICE", Kind::notice)
      .value("YIELD", Kind::yield);
  m.attr("ENVELOPE_ANSWER") = kv::envelope::kAnswer;
  m.attr("ENVELOPE_LAST") = kv::envelope::kLast;
  m.attr("ENVELOPE_REFUSED") = kv::envelope::kRefused;
  m.attr("ENVELOPE_HEADER_BYTES") = sizeof(kv::EnvelopeHeader);
  m.attr("NOTICE_METHOD") = kv::envelope::kNoticeMethod;
  m.def("pack_envelope_header", pack_envelope_header, nb::arg("kind"), nb::arg("source"), nb::arg("target"),
        nb::arg("first_slot"), nb::arg("last_slot"), nb::arg("migration"), nb::arg("payload"),
        nb::arg("flags"), nb::arg("segment"), nb::arg("offset"), nb::arg("total"), nb::arg("sequence"),
        nb::arg("boot_epoch"),
        nb::sig("def pack_envelope_header(kind: EnvelopeKind, source: bytes, target: bytes, first_slot: int, "
                "last_slot: int, migration: bytes, payload: typing_extensions.Buffer, flags: int, segment: "
                "int, offset: int, total: int, sequence: int, boot_epoch: int) -> bytes"),
        "The header of an envelope with this payload, with the checksum over both.");
  m.def("answer_envelope", answer_envelope, nb::arg("message"), nb::arg("payload"), nb::arg("refused"),
        nb::sig("def answer_envelope(message: typing_extensions.Buffer, payload: typing_extensions.Buffer, "
                "refused: bool) -> bytes"),
        "The answer to a message, of which the header is enough. Refused: the payload is the reason.");
  m.def(
      "parse_envelope", parse_envelope, nb::arg("data"),
      nb::sig("def parse_envelope(data: typing_extensions.Buffer) -> tuple[EnvelopeKind, bytes, bytes, int, "
              "int, bytes, int, int, int, int, int, int]"),
      "Parses exactly one envelope: its fields in the order of pack_envelope_header, without the payload. "
      "ProtocolError names the fault.");
}

}  // namespace verbena::bind
