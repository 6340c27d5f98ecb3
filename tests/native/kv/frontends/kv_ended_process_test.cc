// Failures that no client can be blamed for end the process: with one line on standard error that names the
// operation and the exception, and with a status other than 0.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <stdexcept>

#include "check.h"
#include "kv/frontends/event_loop.h"
#include "kv/journal/log.h"
#include "kv_engine.h"
#include "util/error.h"
#include "util/fatal.h"

using namespace verbena;
using namespace verbena::kv;

namespace {

struct End {
  int status;
  std::string text;  // what the process wrote to standard error
};

// Runs the function in a child process.
End end_of(const std::function<void()>& function) {
  int pipe[2];
  CHECK(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::dup2(pipe[1], STDERR_FILENO);
    function();
    ::_exit(0);
  }
  ::close(pipe[1]);
  End end{0, {}};
  char bytes[256];
  for (ssize_t got; (got = ::read(pipe[0], bytes, sizeof bytes)) > 0;)
    end.text.append(bytes, static_cast<size_t>(got));
  ::close(pipe[0]);
  ::waitpid(child, &end.status, 0);
  return end;
}

bool has_ended(const End& end, const std::string& text) {
  return WIFEXITED(end.status) && WEXITSTATUS(end.status) == kFailureStatus && end.text == text;
}

struct Loop {
  Engine engine{1, engines::heap};
  EventLoop loop{engine};
};

}  // namespace

TEST("an exception in work of the event loop ends the process") {
  const auto throws = [] { throw std::runtime_error("out of order"); };
  const std::string text = "verbena: serving clients failed: out of order; the process ends\n";
  CHECK(has_ended(end_of([&] {
                    Loop all;
                    all.loop.on_tick([&](uint64_t) { throws(); });
                    all.loop.run();
                  }),
                  text));
  CHECK(has_ended(end_of([&] {
                    Loop all;
                    all.loop.post(throws);
                    all.loop.run();
                  }),
                  text));
  CHECK(has_ended(end_of([&] {
                    Loop all;
                    all.loop.add_hook(EventLoop::Moment::after, [&](uint64_t) -> uint64_t {
                      throw Error("no_memory", "apply", "no chunk");
                    });
                    all.loop.run();
                  }),
                  "verbena: serving clients failed: no_memory: apply: no chunk; the process ends\n"));
}

TEST("a log that cannot take the effect of a change ends the process") {
  class Broken : public Journal {
    void append(uint32_t, Arguments) override { throw std::bad_alloc(); }
    uint64_t position() const override { return 0; }
  };
  const End end = end_of([] {
    Engine engine(1, engines::heap);
    Broken log;
    engine.set_log(&log);
    engines::QuietClient client(1);
    engine.add(client);
    engine.run(client, std::vector<std::string_view>{"SET", "key", "value"});
  });
  CHECK(has_ended(end, "verbena: logging a change failed: std::bad_alloc; the process ends\n"));
}

TEST("an exception in the thread that syncs the log ends the process") {
  char folder[] = "/tmp/verbena-ended-XXXXXX";
  CHECK(::mkdtemp(folder));
  const End end = end_of([&] {
    int syncs = 0;
    Log log({.directory = folder, .period_ns = 1, .sync = [&](int) -> int {
               if (++syncs > 1) throw std::runtime_error("no disk");
               return 0;
             }});
    const std::string_view effect[] = {"SET", "key", "value"};
    log.append(0, effect);
    log.commit();
    ::pause();
  });
  std::filesystem::remove_all(folder);
  CHECK(has_ended(end, "verbena: syncing the log failed: no disk; the process ends\n"));
}

TEST("a report is written once a minute for each operation") {
  const End end = end_of([] {
    for (int i = 0; i < 3; ++i) report("one thing", "it goes on", "a reason");
    report("another thing", "it goes on", "a reason");
  });
  CHECK(end.status == 0);
  CHECK(end.text ==
        "verbena: one thing failed: a reason; it goes on\n"
        "verbena: another thing failed: a reason; it goes on\n");
}

RUN_TESTS()
