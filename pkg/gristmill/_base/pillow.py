"""Imports the pillow package when an image is decoded by it."""

from __future__ import annotations

from types import ModuleType

__all__ = ["import_pillow"]


def import_pillow(user: str) -> ModuleType:
    """Return the module `PIL.Image`.

    Args:
        user: The name of the class that needs it, for the error.

    Raises:
        ImportError: The package is not installed.
    """
    try:
        import PIL.Image
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise ImportError(
            f"{user} needs the pillow package. Install it with:"
            " pip install 'gristmill[image]'"
        ) from error
    images: ModuleType = PIL.Image
    return images
