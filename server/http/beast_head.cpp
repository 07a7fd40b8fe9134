#include "server/http/beast_head.h"

namespace amk::http {
namespace {

std::string text_of(boost::beast::string_view s) { return {s.data(), s.size()}; }

}  // namespace

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::optional<std::string> bad_head(const BeastRequest& head) {
  if (head.version() != 11 && head.version() != 10) return "HTTP/1.1 is spoken here";
  int lengths = 0, encodings = 0;
  for (const auto& field : head) {
    const std::string name = lower(text_of(field.name_string()));
    lengths += name == "content-length";
    encodings += name == "transfer-encoding";
    for (const char c : field.value())
      if (static_cast<unsigned char>(c) < 0x20 && c != '\t') return "a header value has a control character";
  }
  if (lengths > 1 || encodings > 1 || (lengths && encodings)) return "the length of the body is ambiguous";
  const std::string encoding = lower(text_of(head["Transfer-Encoding"]));
  if (encodings && (encoding != "chunked" || head.version() == 10)) return "no transfer coding but chunked is understood";
  const auto target = head.target();
  if (target.empty() || (target[0] != '/' && target != "*")) return "the target must be a path";
  return std::nullopt;
}

Request request_of(const BeastRequest& head) {
  Request request;
  request.method = text_of(head.method_string());
  const std::string target = text_of(head.target());
  const std::size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : head) request.headers.emplace_back(lower(text_of(field.name_string())), text_of(field.value()));
  return request;
}

std::string head_text(int status, const Headers& headers) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason(status)) + "\r\n";
  for (const auto& [name, value] : headers) out += name + ": " + value + "\r\n";
  // Nothing that we send may be stored, guessed at or framed.
  return out + "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
}

}  // namespace amk::http
