// Questions made up from a few sentences, for a run without any data.
//
//   Anna was born in 1931. Hugo lives in New York. Hugo owns a red horse. Nina eats rice. ...
//   Where does Hugo live?       New York
//
// A paragraph has one sentence of each kind at most, so the kind of the question tells the answer:
// what a small network can learn within a minute.
#pragma once

#include <cstddef>
#include <cstdint>

#include "examples/bert/squad.h"

namespace bert {

// The same for a seed on every machine.
QuestionSet synthetic_questions(size_t count, uint64_t seed);

}  // namespace bert
