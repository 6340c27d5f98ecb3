// Lets sessions in: each stream of theirs is a client of the engine. Native commands run at once on whatever
// thread drives the node; the others, and those that find the engine busy, go by its loop.
#pragma once

#include <array>
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
  uint64_t receiving = 0;  // the call that waits for something to hear
  bool is_receiving = false;
};

class SessionFrontend {
 public:
  SessionFrontend(Engine& engine, EventLoop& loop, std::shared_ptr<transport::Node> node);

  // The engine has a chunk more, which sessions read by this key.
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

  // On the node's thread, with its lock.
  void handle_request(Method method, const transport::Request& request);
  bool can_run_inline(const SessionClient& client, std::string_view bytes);
  std::string_view first_key(std::string_view bytes);
  void queue(Method method, uint64_t session, uint64_t call, std::string payload);
  // With the engine's lock.
  void serve(Method method, uint64_t session, uint64_t call, std::string_view payload);
  SessionClient& client(uint64_t session, uint32_t stream);
  void remove(SessionClient& client);
  std::string layout(const SessionClient& client);
  void flush(uint64_t session, uint32_t stream);
  // Lets go of the streams of sessions that have ended.
  void sweep(uint64_t now);
  std::unique_lock<YieldingMutex> lock_node();
  // False: it is too long for a message, and an empty one goes instead.
  bool reply(const SessionClient& to, uint64_t call, std::string_view bytes);
  // What there is for it to hear, by the call; false: as above, and it still has to hear it.
  bool reply_all(SessionClient& to, uint64_t call);
  // As much of it as a message takes, by the call that waits for it.
  void reply_part(SessionClient& to);

  Engine& engine_;
  EventLoop& loop_;
  const std::shared_ptr<transport::Node> node_;
  std::map<std::pair<uint64_t, uint32_t>, std::unique_ptr<SessionClient>> clients_;
  std::vector<uint64_t> regions_;
  RequestReader reader_;
  std::array<std::string_view, 8> arguments_;  // words of a request that is being looked at
  uint64_t swept_ns_ = 0;
  std::atomic<uint32_t> queued_{0};  // calls on their way to the loop: later ones must not overtake them
  std::atomic<uint64_t> requests_{0};
};

}  // namespace verbena::kv
