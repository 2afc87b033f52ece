// Whole files: read plain or compressed, written so that a crash leaves the old one.
#pragma once

#include <filesystem>
#include <string>

namespace examples {

// A file that gzip compressed is read as what it was before, whatever its name.
std::string read_whole(const std::filesystem::path& path);

// Written to a temporary name beside it, then renamed: there is the old file or the new one.
void write_whole(const std::filesystem::path& path, const std::string& text);

}  // namespace examples
