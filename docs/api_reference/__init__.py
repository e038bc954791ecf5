"""The API reference: pages of all public names, written from their docstrings when the site is built."""

from api_reference.names import Name, public_names
from api_reference.pages import PAGES, UnplacedNameError, place
from api_reference.writing import write

__all__ = ["PAGES", "Name", "UnplacedNameError", "place", "public_names", "write"]
