// Two nodes of one process with a session between them, on the shm wire: links can be broken and made anew.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "check.h"
#include "providers/registry.h"
#include "transport/node/node.h"
#include "util/clock.h"

namespace sides {

using namespace verbena;
using namespace verbena::transport;

constexpr uint32_t kWindow = 16;

inline std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

inline void connect(QueuePair& qp, const Gid& gid, uint32_t number) {
  QpAttributes wanted{.state = QpState::init,
                      .present = qp_attr::access_flags | qp_attr::pkey_index | qp_attr::port,
                      .access_flags = access::all};
  qp.modify(wanted);
  wanted.state = QpState::rtr;
  wanted.present = qp_attr::address | qp_attr::path_mtu | qp_attr::dest_qp_num | qp_attr::rq_psn |
                   qp_attr::max_dest_rd_atomic | qp_attr::min_rnr_timer;
  wanted.dest_gid = gid;
  wanted.dest_qp_num = number;
  wanted.max_dest_rd_atomic = 16;
  wanted.min_rnr_timer = 1;
  qp.modify(wanted);
  wanted.state = QpState::rts;
  wanted.present =
      qp_attr::sq_psn | qp_attr::timeout | qp_attr::retry_count | qp_attr::rnr_retry | qp_attr::max_rd_atomic;
  wanted.max_rd_atomic = 16;
  qp.modify(wanted);
}

// One side: a node with one port and one session.
struct Side {
  explicit Side(NodeOptions options = {.busy_poll_us = 20}, SessionOptions session_options = {.id = 1})
      : context(find_provider("shm")->open("")),
        pd(context->alloc_pd()),
        cq(context->create_cq(1024)),
        srq(pd->create_srq(256, 1)),
        node(std::make_shared<Node>(options)),
        port(node->add_port(std::make_shared<Port>(
            context, pd, cq, srq,
            PortOptions{.name = "shm", .buffer_bytes = 512, .pool_buffers = 256, .window = kWindow}))),
        session(node->add_session(session_options, control, requests)) {}
  ~Side() {
    close_link();
    node->close();
  }

  void open_link() {
    qp = pd->create_qp({.send_cq = cq, .recv_cq = cq, .srq = srq, .limits = {.max_send = 64}});
    const auto held = node->lock();
    link = std::make_unique<Link>(port, qp);
  }
  void close_link() {
    if (!qp) return;
    {
      const auto held = node->lock();
      session->lose_link(Status::success, "closed", false);
    }
    qp->close();
    const auto held = node->lock();
    session->release_link();
  }
  bool is_linked() {
    const auto held = node->lock();
    return session->link() != nullptr;
  }
  uint64_t received() {
    const auto held = node->lock();
    return session->sequence().done();
  }
  void attach(uint64_t peer_received) {
    const auto held = node->lock();
    session->attach(std::move(link), peer_received, session->sequence().done(), kWindow, 512);
  }
  Gid gid() const { return context->query().ports.at(0).gids.at(0); }

  std::string call(uint32_t method, const std::string& payload, Outcome expected = Outcome::ok) {
    Operation* call;
    {
      const auto held = node->lock();
      call = session->call(method, bytes(payload));
    }
    CHECK(call != nullptr);
    CHECK(node->wait(*call, now_ns() + 20'000'000'000));
    CHECK(call->outcome == expected);
    const auto answer = call->answer();
    std::string text(reinterpret_cast<const char*>(answer.data()), answer.size());
    node->end(*call);
    return text;
  }

  std::shared_ptr<EventQueue> control = std::make_shared<EventQueue>(),
                              requests = std::make_shared<EventQueue>();
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq;
  std::shared_ptr<SharedReceiveQueue> srq;
  std::shared_ptr<Node> node;
  std::shared_ptr<Port> port;
  std::shared_ptr<Session> session;
  std::shared_ptr<QueuePair> qp;
  std::unique_ptr<Link> link;
};

inline void join(Side& a, Side& b) {
  a.close_link();
  b.close_link();
  a.open_link();
  b.open_link();
  connect(*a.qp, b.gid(), b.qp->number());
  connect(*b.qp, a.gid(), a.qp->number());
  const uint64_t a_has = a.received(), b_has = b.received();
  a.attach(b_has);
  b.attach(a_has);
}

}  // namespace sides
