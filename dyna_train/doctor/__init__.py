"""Look at episode files from outside: check every promise, save what is whole, restore the layout."""
