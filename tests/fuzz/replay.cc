// A fuzz target without a fuzzer, for any compiler. It plays every file of the given folders, so that a
// defect that was found once stays fixed. With --seeds FOLDER it writes the target's seeds there instead.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "fuzz.h"

namespace {

namespace fs = std::filesystem;

size_t replay(const fs::path& path) {
  if (fs::is_directory(path)) {
    std::vector<fs::path> entries(fs::directory_iterator(path), {});
    std::sort(entries.begin(), entries.end());
    size_t count = 0;
    for (const fs::path& entry : entries) count += replay(entry);
    return count;
  }
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);  // the last line names the culprit
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

void write_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  for (const fuzz::Seed& seed : fuzz::seeds()) {
    fuzz::Script script;
    seed.write(script);
    std::ofstream file(folder / seed.name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(script.bytes().data()),
               static_cast<std::streamsize>(script.bytes().size()));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string_view(arguments[1]) == "--seeds") {
    write_seeds(arguments[2]);
    return 0;
  }
  size_t played = 0;
  for (int i = 1; i < count; ++i) played += replay(arguments[i]);
  std::printf("%zu inputs played\n", played);
  return played > 0 ? 0 : 1;
}
