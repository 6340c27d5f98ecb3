// Python's replies in RESP.
#pragma once

#include <nanobind/nanobind.h>

#include "kv/protocol/resp.h"

namespace verbena::bind {

// Writes what verbena.kv.commands.replies calls a reply. TypeError if it is none.
void write_reply(kv::ReplyWriter& writer, nanobind::handle value);
void bind_kv_replies(nanobind::module_& m);

}  // namespace verbena::bind
