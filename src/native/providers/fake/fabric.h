// Fabric: the network between the fake queue pairs of this process (addresses, packets in flight, the virtual
// clock). Packets are queued at their receiver, and run() drives the receivers until no packet is left. Lock
// order: driving_, then a queue pair's lock, then mutex_.
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
  void remove(const Address& address);  // returns when no thread drives it

  // Queues a packet at `to`, for run(). Lost if that address does not exist.
  void send(const Address& to, Packet packet);
  bool receive(const Address& me, Packet& packet);  // false: no packet has arrived
  void drop_packets(const Address& me);
  // Drives the queue pair once the clock reaches `deadline_ns`; 0: never.
  void set_timer(const Address& me, uint64_t deadline_ns);
  // Drives queue pairs until there is no work. Called without their locks; a call from within a drive returns
  // at once.
  void run();

  uint64_t now() const { return now_.load(std::memory_order_relaxed); }
  void tick(uint64_t nanoseconds);
  // For a thread that is about to sleep: its completion queue is signalled at once while a timer runs, else
  // when one is set.
  void sleep(FakeCompletionQueue& cq);
  void remove_sleeper(FakeCompletionQueue& cq);
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
