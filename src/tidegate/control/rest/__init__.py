"""The REST server, its paths with their OpenAPI document, who may call, and a client."""
