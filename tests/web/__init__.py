"""The web app in a browser, served by a gateway process with a scripted model."""
