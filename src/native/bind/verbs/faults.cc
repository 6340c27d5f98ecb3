// Binds the fault-injecting provider, for verbena.testing.
#include <nanobind/stl/optional.h>

#include <atomic>
#include <memory>

#include "bind/bind.h"
#include "bind/verbs/providers.h"
#include "providers/fake/provider.h"
#include "providers/faulty/provider.h"

namespace verbena::bind {
namespace {

// Python's handle on a plan. Native code shares the plan itself, so it never refers to a Python object.
struct FaultPlanHandle {
  std::shared_ptr<faulty::FaultPlan> plan = std::make_shared<faulty::FaultPlan>();
};

uint64_t total_hits(const FaultPlanHandle& self) {
  uint64_t total = 0;
  for (const faulty::FaultRule& rule : self.plan->rules()) total += rule.hits;
  return total;
}

// Flips bit `bit` of each of the next `count` packets of the fake wire; `count` 0 stops it.
void damage_packets(uint64_t count, uint64_t bit) {
  if (count == 0) return fake::set_packet_tap({});
  const auto left = std::make_shared<std::atomic<uint64_t>>(count);
  fake::set_packet_tap([left, bit](std::span<std::byte> packet) {
    uint64_t now = left->load();
    while (now > 0 && !left->compare_exchange_weak(now, now - 1)) continue;
    if (now > 0) packet[bit / 8 % packet.size()] ^= static_cast<std::byte>(1u << bit % 8);
  });
}

}  // namespace

void bind_faults(nb::module_& m) {
  nb::enum_<faulty::FaultKind>(m, "FaultKind")
      .value("DROP", faulty::FaultKind::drop)
      .value("DELAY", faulty::FaultKind::delay)
      .value("DUPLICATE", faulty::FaultKind::duplicate)
      .value("CORRUPT", faulty::FaultKind::corrupt)
      .value("FAIL", faulty::FaultKind::fail)
      .value("BREAK_LINK", faulty::FaultKind::break_link);
  nb::class_<FaultPlanHandle>(m, "FaultPlan")
      .def(nb::init<>())
      .def(
          "add",
          [](FaultPlanHandle& self, faulty::FaultKind kind, std::optional<Opcode> opcode, uint64_t nth,
             uint64_t count, uint8_t status, uint64_t delay_ns) {
            return self.plan->add({.kind = kind,
                                   .opcode = opcode,
                                   .nth = nth,
                                   .count = count,
                                   .status = static_cast<Status>(status),
                                   .delay_ns = delay_ns});
          },
          nb::arg("kind"), nb::arg("opcode").none(), nb::arg("nth"), nb::arg("count"), nb::arg("status"),
          nb::arg("delay_ns"))
      .def("clear", [](FaultPlanHandle& self) { self.plan->clear(); })
      .def(
          "hits_of", [](const FaultPlanHandle& self, size_t rule) { return self.plan->hits(rule); },
          nb::arg("rule"))
      .def_prop_ro("hits", total_hits);
  m.def("damage_packets", damage_packets, nb::arg("count"), nb::arg("bit"));
  m.def(
      "faulty_provider",
      [](const ProviderHandle& inner, const FaultPlanHandle& plan) {
        return new ProviderHandle{Owned(faulty::make_provider(inner.provider.share(), plan.plan))};
      },
      nb::arg("inner"), nb::arg("plan"));
}

}  // namespace verbena::bind
