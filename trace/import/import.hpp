// Reading traces that other tools wrote.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/import/importer.hpp"
#include "trace/io.hpp"

namespace swaplab {

// All importers, by name.
std::vector<const Importer*> importer_list();

// The importer whose format this is; nullptr when none recognises it.
const Importer* recognise(const ImportInput& input);
// What a file that no importer takes is, for the message: "a Git LFS pointer, ...", or "".
std::string foreign_kind(std::string_view head);

// One trace from one file, or from several that belong together (an execution trace and its Kineto half).
// `from` names the format of the first file; "" recognises it by content. Throws Error(input), and
// Error(usage) for an unknown format name or files that do not belong together.
ImportResult import_trace(std::span<const ImportInput> inputs, std::string_view from = "");
ImportResult import_files(const std::vector<std::string>& paths, std::string_view from = "");

// swaplab's own formats as read_trace does, anything else through import_trace; `report` then says what
// the import did and its `format` is empty otherwise. Throws Error(input) when there is no trace in it.
Trace read_any_trace(const std::string& path, ReadReport* read = nullptr, ImportReport* report = nullptr);

}  // namespace swaplab
