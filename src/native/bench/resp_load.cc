#include "bench/resp_load.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "bench/tcp.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/fd.h"

namespace verbena::bench {
namespace {

constexpr size_t kBufferBytes = 1u << 20;

bool is_not_now(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void RespLoad::Counter::take(std::string_view bytes) {
  while (!bytes.empty() && !bad) {
    if (skip > 0) {
      const size_t some = std::min(skip, bytes.size());
      bytes.remove_prefix(some);
      skip -= some;
      wanted -= skip == 0;
      continue;
    }
    const size_t end = bytes.find('\n');
    const size_t some = end == std::string_view::npos ? bytes.size() : end + 1;
    line.append(bytes.substr(0, some));
    bytes.remove_prefix(some);
    if (end != std::string_view::npos) take_line();
    if (wanted == 0 && !bytes.empty()) bad = true;
  }
}

void RespLoad::Counter::take_line() {
  int64_t number = 0;
  if (line.size() > 3) std::from_chars(line.data() + 1, line.data() + line.size() - 2, number);
  const char kind = line[0];
  line.clear();
  if (kind == '-') ++errors;
  if ((kind == '$' || kind == '=') && number >= 0) {
    skip = static_cast<size_t>(number) + 2;
    return;
  }
  // An array is complete when its last item is, so its items are counted in its place.
  if ((kind == '*' || kind == '~') && number > 0) {
    wanted += static_cast<size_t>(number) - 1;
    return;
  }
  bad |= std::string_view("+-:$*_,#~").find(kind) == std::string_view::npos;
  --wanted;
}

RespLoad::RespLoad(std::vector<int> sockets, RespRequest request, uint32_t depth, uint64_t seed)
    : request_(std::move(request)), depth_(depth), buffer_(kBufferBytes), random_(seed | 1) {
  if (sockets.empty() || depth == 0 || request_.keys == 0) {
    throw Error("invalid_argument", "load a server", "it takes a socket, a request and a key at least");
  }
  for (const uint32_t at : request_.keys_at) {
    if (at + RespRequest::kKeyDigits > request_.bytes.size()) {
      throw Error("invalid_argument", "load a server", "a key lies outside of the request");
    }
  }
  for (uint32_t i = 0; i < depth_; ++i) batch_ += request_.bytes;
  for (const int socket : sockets) connections_.push_back({.socket = socket});
}

void RespLoad::fill(Connection& connection) {
  for (uint32_t i = 0; i < depth_; ++i) {
    for (const uint32_t at : request_.keys_at) {
      random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
      uint64_t number = (request_.in_order ? next_++ : random_ >> 11) % request_.keys;
      char* digits = batch_.data() + i * request_.bytes.size() + at;
      for (size_t d = RespRequest::kKeyDigits; d-- > 0; number /= 10) {
        digits[d] = static_cast<char>('0' + number % 10);
      }
    }
  }
  connection.replies.wanted = depth_;
  connection.begun_ns = now_ns();
}

bool RespLoad::send(Connection& connection, bool wait) {
  std::string_view left = connection.unsent.empty() ? std::string_view(batch_) : connection.unsent;
  while (!left.empty()) {
    const ssize_t sent = ::send(connection.socket, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      left.remove_prefix(static_cast<size_t>(sent));
    } else if (!is_not_now(errno)) {
      return false;
    } else if (!wait) {
      break;
    } else if (!wait_for(connection.socket, POLLOUT, 1'000'000'000)) {
      return false;
    }
  }
  connection.unsent = std::string(left);
  return true;
}

RespLoad::Result RespLoad::run(std::span<double> samples_ns, uint64_t timeout_ns) {
  const uint64_t start = now_ns();
  for (Connection& connection : connections_) connection.replies.errors = 0;
  Result result =
      connections_.size() == 1 ? run_one(samples_ns, timeout_ns) : run_many(samples_ns, timeout_ns);
  result.elapsed_ns = now_ns() - start;
  for (const Connection& connection : connections_) result.errors += connection.replies.errors;
  return result;
}

// Sleeps in recv(2), as a blocking client does.
RespLoad::Result RespLoad::run_one(std::span<double> samples_ns, uint64_t timeout_ns) {
  Result result;
  Connection& connection = connections_.front();
  Counter& replies = connection.replies;
  const timeval receive_timeout{static_cast<time_t>(timeout_ns / 1'000'000'000), 1};
  setsockopt(connection.socket, SOL_SOCKET, SO_RCVTIMEO, &receive_timeout, sizeof receive_timeout);
  for (double& sample : samples_ns) {
    fill(connection);
    if (!send(connection, true)) return result;
    while (replies.wanted > 0) {
      const ssize_t got = ::recv(connection.socket, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return result;
      result.reply_bytes += static_cast<uint64_t>(got);
      replies.take({buffer_.data(), static_cast<size_t>(got)});
      if (replies.bad) return result;
    }
    sample = static_cast<double>(now_ns() - connection.begun_ns);
    result.done += depth_;
  }
  result.finished = true;
  return result;
}

RespLoad::Result RespLoad::run_many(std::span<double> samples_ns, uint64_t timeout_ns) {
  Result result;
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw Error("fd_limit", "load a server", "epoll_create1() failed", errno);
  size_t begun = 0, ended = 0;
  const auto watch = [&](size_t index, bool writable, int how) {
    epoll_event event{.events = EPOLLIN | (writable ? EPOLLOUT : 0u), .data = {.u64 = index}};
    return epoll_ctl(epoll.get(), how, connections_[index].socket, &event) == 0;
  };
  const auto begin = [&](size_t index) {
    ++begun;
    fill(connections_[index]);
    if (!send(connections_[index], false)) return false;
    return connections_[index].unsent.empty() || watch(index, true, EPOLL_CTL_MOD);
  };
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!watch(i, false, EPOLL_CTL_ADD)) return result;
    if (begun < samples_ns.size() && !begin(i)) return result;
  }
  std::array<epoll_event, 128> events;
  while (ended < samples_ns.size()) {
    const int count = epoll_wait(epoll.get(), events.data(), events.size(),
                                 static_cast<int>(std::min<uint64_t>(timeout_ns / 1'000'000, INT32_MAX)));
    if (count <= 0) return result;
    for (int e = 0; e < count; ++e) {
      const size_t index = events[static_cast<size_t>(e)].data.u64;
      Connection& connection = connections_[index];
      if (!connection.unsent.empty()) {
        if (!send(connection, false)) return result;
        if (connection.unsent.empty() && !watch(index, false, EPOLL_CTL_MOD)) return result;
      }
      const ssize_t got = ::recv(connection.socket, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (got < 0 && is_not_now(errno)) continue;
      if (got <= 0 || connection.replies.wanted == 0) return result;
      result.reply_bytes += static_cast<uint64_t>(got);
      connection.replies.take({buffer_.data(), static_cast<size_t>(got)});
      if (connection.replies.bad) return result;
      if (connection.replies.wanted > 0) continue;
      samples_ns[ended++] = static_cast<double>(now_ns() - connection.begun_ns);
      result.done += depth_;
      if (begun < samples_ns.size() && !begin(index)) return result;
    }
  }
  result.finished = true;
  return result;
}

}  // namespace verbena::bench
