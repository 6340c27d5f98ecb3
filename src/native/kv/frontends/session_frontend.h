// The frontend for sessions: each stream of a session is a client of the engine. Native commands run on the
// thread that drives the node; all others, and those that find the engine busy, run on the event loop.
// Depends on the engine, the event loop and the transport; not on Python.h.
#pragma once

#include <deque>
#include <map>
#include <set>

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
  std::pair<uint64_t, uint32_t> session_stream() const override { return {session, stream}; }
  void set_reads_all_keys(bool may) override;

  SessionFrontend& frontend;
  const uint64_t session;
  const uint32_t stream;
  uint64_t receiving = 0;  // the kv.receive call that waits for output, if is_receiving
  bool is_receiving = false;
  bool has_memory_lease = false;  // its session may read the store's memory
};

class SessionFrontend {
 public:
  // `audience`: the sessions to which the engine's chunks are lent.
  SessionFrontend(Engine& engine, EventLoop& loop, std::shared_ptr<transport::Node> node,
                  std::shared_ptr<transport::Audience> audience);

  // The engine has another chunk, which sessions read under this region key. Chunks are added in order.
  void add_region(uint64_t key);
  uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  // Need the engine's lock. Memory leases: clients that have one now, and all that were given one.
  size_t clients() const { return clients_.size(); }
  size_t memory_leases() const { return memory_leases_; }
  uint64_t memory_leases_granted() const { return memory_leases_granted_; }

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
  void take(Method method, const transport::Request& request);
  bool can_run_inline(const SessionClient& client, const transport::Session& session, size_t bytes) const;
  // Runs native requests of a client with the engine's lock and replies to the call, unless others follow.
  // Returns the length of the requests that it ran.
  size_t run_inline(SessionClient& client, const transport::Request& request, std::string_view bytes);
  void queue(Method method, uint64_t session, uint64_t call, std::string payload);
  // These run with the engine's lock.
  void serve(Method method, uint64_t session, uint64_t call, std::string_view payload);
  // Call it while an exception is handled that concerns this stream only: removes its client and fails its
  // open calls. `call` 0: none but that of kv.receive.
  void fail_stream(uint64_t session, uint32_t stream, uint64_t call);
  SessionClient& client(uint64_t session, uint32_t stream);
  std::string peer_of(uint64_t session);
  void remove(SessionClient& client);
  // Ends a stream for the store's part: its later calls fail.
  void close(SessionClient& client);
  void refuse(uint64_t session, uint64_t call);
  // Lends the store's memory to the client's session and describes it. Empty: the client must send commands.
  std::string layout(SessionClient& client);
  // Ends the client's memory lease, unless the session has another one. With the engine's lock and without
  // the GIL.
  void end_memory_lease(SessionClient& client);
  void flush(uint64_t session, uint32_t stream);
  // Runs further requests of a stalled client in the loop's next turn, after other clients.
  void resume_later(const SessionClient& client);
  void resume(uint64_t session, uint32_t stream);
  // Counts the replies that the peer has not acknowledged as unsent, if they are more than may wait.
  void note_unacknowledged(SessionClient& client);
  // Removes the streams of sessions that have ended, and resumes those in waiting_.
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
  const std::shared_ptr<transport::Audience> audience_;
  using StreamName = std::pair<uint64_t, uint32_t>;  // session, stream
  std::map<StreamName, std::unique_ptr<SessionClient>> clients_;
  std::set<StreamName> closed_;      // by the store, of sessions that are open
  std::vector<StreamName> waiting_;  // stalled until the peer acknowledges replies
  std::vector<uint64_t> regions_;
  size_t memory_leases_ = 0;
  uint64_t memory_leases_granted_ = 0;
  uint64_t swept_ns_ = 0;
  std::atomic<uint32_t> queued_{0};  // calls queued for the loop: later ones must not overtake them
  std::atomic<uint64_t> requests_{0};
};

}  // namespace verbena::kv
