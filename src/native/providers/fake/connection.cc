#include "providers/fake/connection.h"

#include <arpa/inet.h>

#include <deque>
#include <map>
#include <utility>

#include "providers/fake/queue_pair.h"
#include "util/error.h"

namespace verbena::fake {
namespace {

std::shared_ptr<FakeQueuePair> fake_qp(const std::shared_ptr<QueuePair>& qp, const char* operation) {
  auto fake = std::dynamic_pointer_cast<FakeQueuePair>(qp);
  if (!fake) throw Error("invalid_argument", operation, "the queue pair must belong to this device");
  return fake;
}

void check_private_data(size_t size, const char* operation) {
  if (size <= kMaxPrivateData) return;
  throw Error("limit_exceeded", operation,
              "private data is limited to " + std::to_string(kMaxPrivateData) + " bytes");
}

class FakeConnection final : public Connection {
 public:
  FakeConnection(std::shared_ptr<Link> link, Side side) : link_(std::move(link)), side_(side) {}

  ConnectionState state() const override { return link_->state(); }
  ErrorCode error_code() const override { return link_->error_code(); }
  std::string peer() const override { return link_->name_of(other()); }
  std::vector<uint8_t> private_data() const override { return link_->data_from(other()); }
  int fileno() const override { return link_->event(side_).fileno(); }
  void acknowledge() override { link_->event(side_).clear(); }
  void disconnect() override { link_->disconnect(); }

 private:
  Side other() const { return side_ == Side::initiator ? Side::listener : Side::initiator; }

  const std::shared_ptr<Link> link_;
  const Side side_;
};

class FakeConnectRequest final : public ConnectRequest {
 public:
  explicit FakeConnectRequest(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~FakeConnectRequest() override { link_->refuse(ConnectionState::rejected, "rejected", {}); }

  std::string peer() const override { return link_->name_of(Side::initiator); }
  std::vector<uint8_t> private_data() const override { return link_->data_from(Side::initiator); }
  std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) override {
    check_private_data(params.private_data.size(), "accept");
    link_->accept(fake_qp(qp, "accept"), params);
    return std::make_shared<FakeConnection>(link_, Side::listener);
  }
  void reject(std::span<const uint8_t> private_data) override {
    check_private_data(private_data.size(), "reject");
    link_->refuse(ConnectionState::rejected, "rejected", private_data);
  }

 private:
  const std::shared_ptr<Link> link_;
};

class FakeListener;

// The listeners by name. Never destroyed, like the fabric.
struct ListenerNames {
  std::mutex mutex;
  std::map<std::string, FakeListener*> listeners;
  uint64_t chosen = 0;

  static ListenerNames& instance() {
    static ListenerNames& names = *new ListenerNames;
    return names;
  }
};

class FakeListener final : public Listener {
 public:
  FakeListener(std::string name, int backlog) : name_(std::move(name)), backlog_(backlog > 0 ? backlog : 1) {}
  ~FakeListener() override { close(); }

  std::string address() const override { return name_; }
  int fileno() const override { return event_.get(); }

  std::shared_ptr<ConnectRequest> next() override {
    const std::lock_guard lock(mutex_);
    while (!waiting_.empty()) {
      auto link = std::move(waiting_.front());
      waiting_.pop_front();
      if (waiting_.empty()) event_.clear();
      // Initiators that have given up are skipped.
      if (link->state() == ConnectionState::connecting)
        return std::make_shared<FakeConnectRequest>(std::move(link));
    }
    return nullptr;
  }

  void close() override {
    ListenerNames& names = ListenerNames::instance();
    {
      const std::lock_guard lock(names.mutex);
      const auto found = names.listeners.find(name_);
      if (found != names.listeners.end() && found->second == this) names.listeners.erase(found);
    }
    const std::lock_guard lock(mutex_);
    for (const auto& link : waiting_) link->refuse(ConnectionState::failed, "unreachable", {});
    waiting_.clear();
    event_.clear();
  }

  bool enqueue(const std::shared_ptr<Link>& link) {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= static_cast<size_t>(backlog_)) return false;
    waiting_.push_back(link);
    event_.signal();
    return true;
  }

 private:
  const std::string name_;
  const int backlog_;
  const EventFd event_;
  std::mutex mutex_;  // taken after ListenerNames::mutex
  std::deque<std::shared_ptr<Link>> waiting_;
};

std::string text_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
}

}  // namespace

std::shared_ptr<Listener> listen(const std::string& name, int backlog) {
  ListenerNames& names = ListenerNames::instance();
  const std::lock_guard lock(names.mutex);
  std::string taken = name;
  while (taken.empty() || (name.empty() && names.listeners.contains(taken))) {
    taken = "fake-" + std::to_string(++names.chosen);
  }
  if (names.listeners.contains(taken)) throw Error("address_in_use", "listen", "'" + taken + "' is taken");
  auto listener = std::make_shared<FakeListener>(taken, backlog);
  names.listeners[taken] = listener.get();
  return listener;
}

std::shared_ptr<Connection> connect(const std::shared_ptr<QueuePair>& qp, const std::string& name,
                                    const ConnectParams& params) {
  check_private_data(params.private_data.size(), "connect");
  const auto fake = fake_qp(qp, "connect");
  if (fake->state() != QpState::reset && fake->state() != QpState::init) {
    throw Error("bad_transition", "connect", "the queue pair must be in RESET or INIT");
  }
  const auto link = std::make_shared<Link>(fake, text_of(fake->address().gid), name, params);
  fake->set_link(link);
  ListenerNames& names = ListenerNames::instance();
  const std::lock_guard lock(names.mutex);
  const auto found = names.listeners.find(name);
  if (found == names.listeners.end() || !found->second->enqueue(link)) {
    link->refuse(ConnectionState::failed, "unreachable", {});
  }
  return std::make_shared<FakeConnection>(link, Side::initiator);
}

}  // namespace verbena::fake
