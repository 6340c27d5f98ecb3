// A client's byte stream to a store that speaks Valkey over RDMA: drives its link until bytes are sent or
// have arrived. One thread at a time may use it. Depends on verbs and on ValkeyRdmaLink, which the frontend
// uses too; not on the engine or Python.h.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "kv/frontends/valkey_rdma_link.h"
#include "util/waiter.h"

namespace verbena::kv {

class ValkeyRdmaStream {
 public:
  // `qp` must be connected, by `connection`.
  ValkeyRdmaStream(std::unique_ptr<ValkeyRdmaLink> link, std::shared_ptr<QueuePair> qp,
                   std::shared_ptr<Connection> connection)
      : link_(std::move(link)), connection_(std::move(connection)) {
    link_->limit_unanswered_writes();
    link_->start(std::move(qp));
  }

  // Sends `bytes` and removes from them what has been sent. False: the deadline has passed. True: nothing is
  // left, or the connection has ended.
  bool send(std::string_view& bytes, uint64_t deadline_ns) {
    return drive_until(deadline_ns, [&] {
      bytes.remove_prefix(link_->send(bytes));
      return bytes.empty();
    });
  }
  // Waits for bytes. False: the deadline has passed. True: received() is not empty, or the connection has
  // ended.
  bool receive(uint64_t deadline_ns) {
    return drive_until(deadline_ns, [&] { return !received().empty(); });
  }
  std::string_view received() const { return link_->arrived(); }
  void consume(size_t bytes) { link_->consume(bytes); }

 private:
  static constexpr uint64_t kSpinNs = 50'000;

  // Drives the link until done() is true, the link has failed or the connection has ended. False: the
  // deadline has passed.
  template <typename Done>
  bool drive_until(uint64_t deadline_ns, Done done) {
    const auto poll = [&] { return !link_->drive() || done(); };
    const auto arm = [&] {
      link_->cq().acknowledge();
      link_->cq().arm(false);
    };
    const auto sleep = [&](uint64_t timeout_ns) {
      if (connection_->state() != ConnectionState::established) return Wake::stop;
      if (sleep_on(link_->cq().fileno(), connection_->fileno(), timeout_ns).second) {
        connection_->acknowledge();
      }
      return Wake::rearm;
    };
    return Waiter(kSpinNs, deadline_ns).wait(poll, arm, sleep) != WaitResult::timed_out;
  }

  const std::unique_ptr<ValkeyRdmaLink> link_;
  const std::shared_ptr<Connection> connection_;
};

}  // namespace verbena::kv
