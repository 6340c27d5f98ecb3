#include "bench/loops.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bench/timer.h"
#include "util/clock.h"
#include "util/spinlock.h"

namespace verbena::bench {
namespace {

constexpr uint32_t kPollBatch = 16;
constexpr uint32_t kPostBatch = 32;

bool is_receive(const Completion& done) {
  return done.opcode == WcOpcode::recv || done.opcode == WcOpcode::recv_rdma_with_imm;
}

// Shared by all loops: posting with back-pressure, polling with a timeout, and the first failure.
class Driver {
 public:
  explicit Driver(const Endpoint& end)
      : end_(end), start_ns_(now_ns()), deadline_ns_(start_ns_ + end.timeout_ns) {}

  // Polls once and passes each success to `take`. False: a failure or a timeout.
  template <typename Take>
  bool poll(Take&& take) {
    size_t count = end_.cq.poll(batch_);
    if (count == 0 && end_.sleeps) {
      end_.cq.arm(false);
      count = end_.cq.poll(batch_);  // completions from before the arming raise no event
      if (count == 0) return sleep();
    }
    if (count == 0) return idle();
    spins_ = 0;
    for (size_t i = 0; i < count; ++i) {
      if (batch_[i].status != Status::success) {
        result_.status = batch_[i].status;
        return false;
      }
      take(batch_[i]);
    }
    return true;
  }

  // Posts all of `batch`, polling while the queue is full.
  template <typename Take>
  bool send(std::span<const SendRequest> batch, Take&& take) {
    return post(batch, [this](auto rest) { return end_.qp.post_send(rest); }, take);
  }

  template <typename Take>
  bool receive(std::span<const RecvRequest> batch, Take&& take) {
    return post(batch, [this](auto rest) { return end_.qp.post_recv(rest); }, take);
  }

  LoopResult finish(uint64_t done) {
    result_.done = done;
    result_.elapsed_ns = now_ns() - start_ns_;
    return result_;
  }

  bool corrupted() {
    result_.corrupted = true;
    return false;
  }

 private:
  template <typename Request, typename Post, typename Take>
  bool post(std::span<const Request> batch, Post&& call, Take&& take) {
    while (true) {
      const PostResult posted = call(batch);
      if (posted.accepted == batch.size()) return true;
      if (posted.error != PostError::full) {
        result_.post_error = posted.error;
        return false;
      }
      batch = batch.subspan(posted.accepted);
      if (!poll(take)) return false;
    }
  }

  // Reads the clock only now and then, so that waiting costs no more than a pause instruction.
  bool idle() {
    cpu_relax();
    if (++spins_ % kSpinsPerClock != 0) return true;
    const uint64_t now = now_ns();
    if (spins_ == kSpinsPerClock) deadline_ns_ = now + end_.timeout_ns;
    result_.timed_out = now > deadline_ns_;
    return !result_.timed_out;
  }

  bool sleep() {
    pollfd bell{end_.cq.fileno(), POLLIN, 0};
    const int ready = ::poll(&bell, 1, static_cast<int>(end_.timeout_ns / 1'000'000));
    if (ready > 0) end_.cq.acknowledge();
    result_.timed_out = ready == 0;
    return !result_.timed_out;
  }

  Endpoint end_;
  uint64_t start_ns_, deadline_ns_;
  uint32_t spins_ = 0;
  LoopResult result_;
  std::array<Completion, kPollBatch> batch_;
};

// The mailbox of the two-sided loops, and the numbers by which messages are checked.
class Conversation {
 public:
  Conversation(const Endpoint& end, const Mailbox& box) : driver(end), box_(box) {
    const QpLimits limits = end.qp.limits();
    signal_every_ = std::max(1u, std::min(kPostBatch, limits.max_send / 2));
    inline_ = box.message_bytes <= limits.max_inline;
    outgoing_ = {.addr = box.addr, .length = box.message_bytes, .lkey = box.lkey};
  }

  // Sends message `number`. Signalled only now and then, so that the send queue is emptied.
  bool send(uint64_t number, bool last) {
    stamp(number);
    const bool signaled = last || ++unsignaled_ == signal_every_;
    const SendRequest request{.flags = flags(signaled), .local = {&outgoing_, 1}};
    if (signaled) {
      unsignaled_ = 0;
      ++unfinished_;
    }
    return driver.send({&request, 1}, *this);
  }

  // Waits for one message and checks its number; call repost() for its slot afterwards.
  bool await_message(uint64_t number) {
    while (arrived_ == taken_) {
      if (!driver.poll(*this)) return false;
    }
    slot_ = ready_[taken_++ % kMaxReady];
    return read(slot_) == expected(number) || driver.corrupted();
  }

  // Off the critical path: called after the answer has been sent.
  bool repost() {
    const Sge into = receive_slot(slot_);
    const RecvRequest request{.id = slot_, .local = {&into, 1}};
    return driver.receive({&request, 1}, *this);
  }

  bool settle() {
    while (unfinished_ > 0) {
      if (!driver.poll(*this)) return false;
    }
    return true;
  }

  bool post_all() {
    for (slot_ = 1; slot_ <= box_.receives; ++slot_) {
      if (!repost()) return false;
    }
    return true;
  }

  // Takes a completion from the driver.
  void operator()(const Completion& done) {
    if (is_receive(done)) {
      ready_[arrived_++ % kMaxReady] = done.id;
    } else {
      --unfinished_;
    }
  }

  Driver driver;

 private:
  static constexpr uint32_t kMaxReady = 4096;  // at least the number of receives that can be posted

  uint32_t flags(bool signaled) const {
    return (signaled ? send_flag::signaled : 0) | (inline_ ? send_flag::inline_data : 0);
  }

  Sge receive_slot(uint64_t slot) const {
    return {.addr = box_.addr + slot * box_.slot_bytes(), .length = box_.message_bytes, .lkey = box_.lkey};
  }

  uint64_t expected(uint64_t number) const {
    return box_.message_bytes >= 8 ? number : number & ((1ull << (8 * box_.message_bytes)) - 1);
  }

  size_t stamp_bytes() const { return std::min<size_t>(sizeof(uint64_t), box_.message_bytes); }

  void stamp(uint64_t number) { std::memcpy(reinterpret_cast<void*>(box_.addr), &number, stamp_bytes()); }

  uint64_t read(uint64_t slot) const {
    uint64_t number = 0;
    std::memcpy(&number, reinterpret_cast<const void*>(receive_slot(slot).addr), stamp_bytes());
    return number;
  }

  Mailbox box_;
  Sge outgoing_;
  uint32_t signal_every_ = 1, unsignaled_ = 0;
  int64_t unfinished_ = 0;  // signalled sends without a completion yet
  bool inline_ = false;
  uint64_t slot_ = 0, arrived_ = 0, taken_ = 0;
  std::array<uint64_t, kMaxReady> ready_;
};

}  // namespace

LoopResult post_receives(const Endpoint& end, const Mailbox& box) {
  Conversation talk(end, box);
  const bool posted = talk.post_all();
  return talk.driver.finish(posted ? box.receives : 0);
}

LoopResult ping(const Endpoint& end, const Mailbox& box, std::span<double> samples_ns, uint32_t rounds) {
  const Timer& timer = Timer::instance();
  const uint64_t total = samples_ns.size() * rounds;
  Conversation talk(end, box);
  uint64_t number = 0;
  uint64_t start = timer.ticks();
  for (double& sample : samples_ns) {
    for (uint32_t round = 0; round < rounds; ++round, ++number) {
      if (!talk.send(number, number + 1 == total)) return talk.driver.finish(number);
      // The slot of the previous answer is posted again while this message travels.
      if (number > 0 && !talk.repost()) return talk.driver.finish(number);
      if (!talk.await_message(number)) return talk.driver.finish(number);
    }
    const uint64_t end_ticks = timer.ticks();
    sample = timer.per_round_ns(start, end_ticks, rounds);
    start = end_ticks;
  }
  if (total > 0 && talk.repost()) talk.settle();
  return talk.driver.finish(number);
}

LoopResult pong(const Endpoint& end, const Mailbox& box, uint64_t rounds) {
  Conversation talk(end, box);
  for (uint64_t number = 0; number < rounds; ++number) {
    if (!talk.await_message(number) || !talk.send(number, number + 1 == rounds) || !talk.repost()) {
      return talk.driver.finish(number);
    }
  }
  talk.settle();
  return talk.driver.finish(rounds);
}

LoopResult send_rate(const Endpoint& end, const Mailbox& box, uint64_t messages, uint32_t depth) {
  const QpLimits limits = end.qp.limits();
  depth = std::max(1u, std::min(depth, limits.max_send));
  const uint32_t batch_size = std::max(1u, std::min(kPostBatch, depth / 2));
  const uint32_t inline_flag = box.message_bytes <= limits.max_inline ? send_flag::inline_data : 0;
  const Sge outgoing{.addr = box.addr, .length = box.message_bytes, .lkey = box.lkey};
  std::array<SendRequest, kPostBatch> batch;

  Driver driver(end);
  uint64_t posted = 0, finished = 0;
  auto take = [&](const Completion& done) { finished = done.id; };
  while (finished < messages) {
    if (posted < messages && posted - finished + batch_size <= depth) {
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch_size, messages - posted));
      for (uint32_t i = 0; i < count; ++i)
        batch[i] = {.id = 0, .flags = inline_flag, .local = {&outgoing, 1}};
      posted += count;
      batch[count - 1].id = posted;
      batch[count - 1].flags |= send_flag::signaled;
      if (!driver.send({batch.data(), count}, take)) break;
    } else if (!driver.poll(take)) {
      break;
    }
  }
  return driver.finish(finished);
}

LoopResult receive_rate(const Endpoint& end, const Mailbox& box, uint64_t messages) {
  std::array<Sge, kPostBatch> slots;
  std::array<RecvRequest, kPostBatch> batch;
  const uint32_t batch_size = std::max(1u, std::min(kPostBatch, box.receives / 2));
  const uint64_t stride = box.slot_bytes();
  uint32_t held = 0;
  uint64_t received = 0;

  // Completions polled while re-posting are kept here: at most one poll's worth beyond a full batch.
  std::array<uint64_t, kPostBatch + kPollBatch * 2> waiting;
  Driver driver(end);
  auto take = [&](const Completion& done) {
    waiting[held++] = done.id;
    ++received;
  };
  auto repost = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      slots[i] = {.addr = box.addr + waiting[i] * stride, .length = box.message_bytes, .lkey = box.lkey};
      batch[i] = {.id = waiting[i], .local = {&slots[i], 1}};
    }
    std::copy(waiting.begin() + count, waiting.begin() + held, waiting.begin());
    held -= count;
    return driver.receive({batch.data(), count}, take);
  };
  while (received < messages) {
    if (!driver.poll(take)) return driver.finish(received);
    if (held >= batch_size && !repost(batch_size)) return driver.finish(received);
  }
  while (held > 0 && repost(std::min(held, batch_size))) {
  }
  return driver.finish(received);
}

LoopResult one_sided_latency(const Endpoint& end, const OneSided& work, std::span<double> samples_ns,
                             uint32_t rounds) {
  const Timer& timer = Timer::instance();
  const SendRequest request{.opcode = work.opcode,
                            .rkey = work.rkey,
                            .remote_addr = work.remote_addr,
                            .compare_add = work.opcode == Opcode::fetch_add ? 1u : 0u,
                            .local = {&work.local, 1}};
  Driver driver(end);
  uint64_t posted = 0, finished = 0;
  auto take = [&](const Completion&) { ++finished; };
  uint64_t start = timer.ticks();
  for (double& sample : samples_ns) {
    for (uint32_t round = 0; round < rounds; ++round) {
      ++posted;
      if (!driver.send({&request, 1}, take)) return driver.finish(finished);
      while (finished < posted) {
        if (!driver.poll(take)) return driver.finish(finished);
      }
    }
    const uint64_t end_ticks = timer.ticks();
    sample = timer.per_round_ns(start, end_ticks, rounds);
    start = end_ticks;
  }
  return driver.finish(finished);
}

LoopResult one_sided_rate(const Endpoint& end, const OneSided& work, uint64_t operations, uint32_t depth) {
  const QpLimits limits = end.qp.limits();
  depth = std::max(1u, std::min(depth, limits.max_send));
  const uint32_t batch_size = std::max(1u, std::min(kPostBatch, depth / 2));
  std::array<SendRequest, kPostBatch> batch;
  batch.fill({.opcode = work.opcode,
              .flags = 0,
              .rkey = work.rkey,
              .remote_addr = work.remote_addr,
              .compare_add = work.opcode == Opcode::fetch_add ? 1u : 0u,
              .local = {&work.local, 1}});

  Driver driver(end);
  uint64_t posted = 0, finished = 0;
  auto take = [&](const Completion& done) { finished = done.id; };
  while (finished < operations) {
    if (posted < operations && posted - finished + batch_size <= depth) {
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch_size, operations - posted));
      posted += count;
      batch[count - 1].id = posted;
      batch[count - 1].flags = send_flag::signaled;
      const bool accepted = driver.send({batch.data(), count}, take);
      batch[count - 1].flags = 0;
      if (!accepted) break;
    } else if (!driver.poll(take)) {
      break;
    }
  }
  return driver.finish(finished);
}

}  // namespace verbena::bench
