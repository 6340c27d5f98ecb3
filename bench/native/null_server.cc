// An upper bound for redis-benchmark: a server that counts requests and answers each with the same bytes. Its
// rate is the limit of the client itself, which no store can exceed.
//
//   null_server [batch|each] [PAUSE_US]   prints its port; serves until its standard input ends
//
// `batch` reads all ready sockets before it answers any; PAUSE_US lets sockets fill between rounds.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "util/clock.h"

namespace {

constexpr std::string_view kAnswer = "$3\r\nxxx\r\n";

int listen_anywhere() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 512) != 0) std::abort();
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return fd;
}

struct Due {
  int fd;
  size_t requests;
};

}  // namespace

int main(int argc, char** argv) {
  const bool batch = argc < 2 || std::string_view(argv[1]) == "batch";
  const uint64_t pause_ns = argc > 2 ? std::strtoull(argv[2], nullptr, 10) * 1000 : 0;
  const int listener = listen_anywhere(), epoll = epoll_create1(0);
  for (const int fd : {listener, STDIN_FILENO}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }
  std::string answers;
  for (int i = 0; i < 1024; ++i) answers += kAnswer;
  std::vector<char> buffer(64u << 10);
  std::vector<Due> due;
  const auto answer = [&](const Due& to) {
    const size_t bytes = std::min(to.requests * kAnswer.size(), answers.size());
    if (::send(to.fd, answers.data(), bytes, MSG_NOSIGNAL) < 0) ::close(to.fd);
  };
  epoll_event events[256];
  for (;;) {
    const uint64_t start = verbena::now_ns();
    while (pause_ns && verbena::now_ns() - start < pause_ns) {
    }
    const int count = epoll_wait(epoll, events, 256, 0);  // it polls without sleeping, like a busy server
    due.clear();
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == STDIN_FILENO) return 0;
      if (fd == listener) {
        const int client = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK), on = 1;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        epoll_event event{.events = EPOLLIN, .data = {.fd = client}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
        continue;
      }
      const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        ::close(fd);
        continue;
      }
      const auto requests = std::count(buffer.begin(), buffer.begin() + got, '*');
      due.push_back({fd, static_cast<size_t>(requests)});
      if (!batch) {
        answer(due.back());
        due.pop_back();
      }
    }
    for (const Due& to : due) answer(to);
  }
}
