// A Box is a rectangle of a picture, in pixels.
#pragma once

namespace gristmill {

struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

}  // namespace gristmill
