"""What goes over the wire of the JSON API: names in camelCase, checked by pydantic."""
