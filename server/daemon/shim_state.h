// What a shim must remember to survive its daemon: which requests are unanswered, and the handshake to repeat. Pure; not thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk::daemon {

class ShimState {
 public:
  // A line from the client that is passed on to the daemon.
  void note_client(std::string_view line);

  // A line from the daemon. False: it answers something of our own and must not reach the client.
  bool note_daemon(std::string_view line);

  // Unanswered requests that end by themselves (subscriptions do not).
  bool waiting() const;

  // The connection broke: error replies for every unanswered request, which is forgotten. `reason` goes into the message.
  std::vector<std::string> fail_pending(const std::string& reason);

  // What a new connection must hear before anything else: the handshake that earlier ones heard, under ids of our own. Empty if
  // there was none.
  std::vector<std::string> handshake();

 private:
  void note_request(const Json& message, std::string_view line);
  void answered(const Json& id);

  std::map<std::string, std::string> pending_;  // dumped id -> method
  std::string initialize_;                      // the client's request, as it came
  bool initialized_ = false;                    // and its notification
  std::string set_level_;
  std::map<std::string, std::string> subscribe_;  // uri -> the client's request
  int next_own_id_ = 1;
};

}  // namespace amk::daemon
