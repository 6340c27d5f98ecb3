// The frontend for sessions: each stream of a session is a client of the engine. Native commands run on the
// thread that drives the node; all others, and those that find the engine busy, run on the event loop.
// Depends on the engine, the event loop and the transport; not on Python.h.
#pragma once

#include <deque>
#include <map>

#include "kv/engine/engine.h"
#include "kv/frontends/event_loop.h"
#include "transport/node/methods.h"
#include "transport/node/node.h"

namespace verbena::kv {

class SessionFrontend;

class SessionClient : public Client {
 public:
  SessionClient(SessionFrontend& owner, uint64_t number, uint64_t of_session, uint32_t of_stream)
      : Client(number), frontend(owner), session(of_session), stream(of_stream) {}
  void queue_write() override;

  SessionFrontend& frontend;
  const uint64_t session;
  const uint32_t stream;
  uint64_t receiving = 0;  // the kv.receive call that waits for output, if is_receiving
  bool is_receiving = false;
};

class SessionFrontend {
 public:
  SessionFrontend(Engine& engine, EventLoop& loop, std::shared_ptr<transport::Node> node);

  // The engine has another chunk, which sessions read under this region key. Chunks are added in order.
  void add_region(uint64_t key);
  uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }

 private:
  friend class SessionClient;
  enum class Method : uint8_t { request, receive, close, layout };
  class MethodHandler : public transport::Handler {
   public:
    MethodHandler(SessionFrontend& frontend, Method method) : frontend_(frontend), method_(method) {}
    void handle(const transport::Request& request) override { frontend_.handle_request(method_, request); }

   private:
    SessionFrontend& frontend_;
    const Method method_;
  };

  // These run on the thread that drives the node, with the node's lock.
  void handle_request(Method method, const transport::Request& request);
  bool can_run_inline(const SessionClient& client, size_t bytes) const;
  // Runs native requests of a client with the engine's lock and replies to the call, unless others follow.
  // Returns the length of the requests that it ran.
  size_t run_inline(SessionClient& client, const transport::Request& request, std::string_view bytes);
  void queue(Method method, uint64_t session, uint64_t call, std::string payload);
  // These run with the engine's lock.
  void serve(Method method, uint64_t session, uint64_t call, std::string_view payload);
  SessionClient& client(uint64_t session, uint32_t stream);
  void remove(SessionClient& client);
  std::string layout(const SessionClient& client);
  void flush(uint64_t session, uint32_t stream);
  // Runs further requests of a stalled client in the loop's next turn, after other clients.
  void resume_later(const SessionClient& client);
  // Removes the streams of sessions that have ended.
  void sweep(uint64_t now);
  std::unique_lock<YieldingMutex> lock_node();
  // Replies to a call. False: `bytes` are too long for a message, and an empty reply was sent instead.
  bool reply(const SessionClient& to, uint64_t call, std::string_view bytes);
  // Replies with all of `out`. False: it is too long, an empty reply was sent, and `out` is unchanged.
  bool reply_all(SessionClient& to, uint64_t call);
  // Replies to the waiting kv.receive with as much of `out` as fits in a message.
  void reply_part(SessionClient& to);

  Engine& engine_;
  EventLoop& loop_;
  const std::shared_ptr<transport::Node> node_;
  std::map<std::pair<uint64_t, uint32_t>, std::unique_ptr<SessionClient>> clients_;
  std::vector<uint64_t> regions_;
  uint64_t swept_ns_ = 0;
  std::atomic<uint32_t> queued_{0};  // calls queued for the loop: later ones must not overtake them
  std::atomic<uint64_t> requests_{0};
};

}  // namespace verbena::kv
