#include "kv/values/value_copy.h"

#include "kv/journal/log_record.h"

namespace verbena::kv {

bool ValueCopy::fail(const char* why) {
  error_ = std::string(why) + ": key " + key_.substr(0, 100);
  return false;
}

bool ValueCopy::step(Engine& engine, Database& database, const Put& put) {
  const Entry entry = database.peek(key_);
  if (!entry || entry.type() == Type::string) walk_.reset();
  if (!entry) {
    const std::string_view gone[] = {"DEL", key_};
    if (begun_) put(gone);
    return false;
  }
  const std::string when = std::to_string(entry.expires_ms());
  if (entry.type() == Type::string) {
    const std::string_view arguments[] = {"SET", key_, entry.value(), "PXAT", when};
    put(Arguments(arguments).first(entry.expires_ms() ? 5 : 3));
    return false;
  }
  PythonHandler* const handler = engine.handler();
  if (!handler) return fail("no handler can write the value");
  if (!lost_ && (!walk_ || object_ != entry.object())) {
    object_ = entry.object();
    walk_ = handler->walk(object_);
    const std::string_view anew[] = {"DEL", key_};
    if (walk_) put(anew);
    begun_ |= walk_ != nullptr;
  }
  if (walk_) {
    const ValueWalk::Step step = walk_->next(key_, arguments_);
    if (step == ValueWalk::Step::failed) return fail("a value could not be written");
    if (step == ValueWalk::Step::more) {
      put(arguments_);
      return true;
    }
    walk_.reset();
    if (step == ValueWalk::Step::whole) {
      const std::string_view timed[] = {"PEXPIREAT", key_, when}, lasting[] = {"PERSIST", key_};
      put(entry.expires_ms() ? Arguments(timed) : Arguments(lasting));
      return false;
    }
    lost_ = true;
  }
  std::string bytes;
  if (!handler->dump(entry.object(), bytes)) return fail("a value could not be written");
  const std::string_view arguments[] = {"RESTORE", key_, when, bytes, "ABSTTL", "REPLACE"};
  if (arguments_bytes(arguments) > kLongestRecord) return fail("a value is too long");
  put(arguments);
  return false;
}

}  // namespace verbena::kv
