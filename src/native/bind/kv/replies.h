// Converts replies of Python commands to RESP. Needs the GIL; depends on the protocol only.
#pragma once

#include <nanobind/nanobind.h>

#include "kv/protocol/resp.h"

namespace verbena::bind {

// Writes a reply as verbena.kv.commands.replies defines it. Raises TypeError for other objects; the caller
// must then discard what was written.
void write_reply(kv::ReplyWriter& writer, nanobind::handle value);
void bind_kv_replies(nanobind::module_& m);

}  // namespace verbena::bind
