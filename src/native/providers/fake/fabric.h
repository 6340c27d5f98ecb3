// The network between the fake queue pairs of this process: addresses, packets under way, the virtual clock.
// Packets are queued at their receiver, and run() lets the receivers work until none is left.
// Lock order: driving_ before a queue pair's lock before mutex_.
#pragma once

#include <atomic>
#include <compare>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "providers/fake/packet.h"
#include "providers/fake/provider.h"
#include "util/spinlock.h"

namespace verbena::fake {

class FakeCompletionQueue;
class FakeQueuePair;

struct Address {
  Gid gid{};
  uint32_t qp = 0;
  auto operator<=>(const Address&) const = default;
};

class Fabric {
 public:
  static Fabric& instance();  // never destroyed: queue pairs may outlive static objects

  void add(const Address& address, FakeQueuePair& qp);
  void remove(const Address& address);  // returns when nobody drives it any more

  // Queues a packet at `to`, where run() will find it. Lost if nobody is there.
  void send(const Address& to, Packet packet);
  bool receive(const Address& me, Packet& packet);  // false: nothing has come
  void forget_packets(const Address& me);
  // Has the queue pair driven once the clock has reached `deadline_ns`; 0 for never.
  void set_timer(const Address& me, uint64_t deadline_ns);
  // Drives queue pairs until all is quiet. Without a lock of theirs; a call from within a drive returns at
  // once.
  void run();

  uint64_t now() const { return now_.load(std::memory_order_relaxed); }
  void tick(uint64_t nanoseconds);
  // The caller is about to sleep on its bell: it is woken at once while a timer runs, else when one has been
  // set.
  void sleep(FakeCompletionQueue& cq);
  void forget_sleeper(FakeCompletionQueue& cq);
  void set_tap(PacketTap tap);

 private:
  struct Port {
    FakeQueuePair* qp = nullptr;
    std::deque<Packet> inbox;
    uint64_t deadline_ns = 0;
    bool is_scheduled = false;
  };

  void schedule(const Address& address, Port& port);
  void advance_clock(uint64_t nanoseconds);
  FakeQueuePair* next_scheduled();

  Spinlock driving_;
  std::mutex mutex_;
  std::map<Address, Port> ports_;
  std::deque<Address> scheduled_;
  std::set<Address> timers_;
  std::set<FakeCompletionQueue*> sleepers_;
  std::shared_ptr<const PacketTap> tap_;
  std::atomic<uint64_t> now_{0};
};

}  // namespace verbena::fake
